from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.decisions import decide
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.temperature import fit_temperatures
from kmcl.evaluation.uncertainty import (
    COVERAGES,
    certainty_points,
    compare_uncertainties,
    detect_errors,
    fit_error_model,
    risk_at_coverage,
    uncertainty_scores,
)

orders = st.integers(1, 30).flatmap(
    lambda length: st.tuples(
        arrays(np.float64, length, elements=st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0])),
        arrays(np.bool_, length),
    )
)


def area_of_order(wrong_in_order: np.ndarray) -> float:
    return float(np.mean(np.cumsum(wrong_in_order) / np.arange(1, len(wrong_in_order) + 1)))


def test_the_area_is_the_mean_risk_over_all_coverages() -> None:
    wrong = np.array([False, True, False, False, True])
    found = detect_errors(certainty_points(np.array([0.1, 0.2, 0.3, 0.4, 0.5]), wrong))
    assert found.aurc == pytest.approx((0 + 1 / 2 + 1 / 3 + 1 / 4 + 2 / 5) / 5)
    assert found.best_aurc == pytest.approx((0 + 0 + 0 + 1 / 4 + 2 / 5) / 5)
    assert found.error_rate == pytest.approx(2 / 5)
    assert found.gain == pytest.approx((found.error_rate - found.aurc) / (found.error_rate - found.best_aurc))


@given(orders)
def test_ties_count_as_in_random_order(order) -> None:
    uncertainty, wrong = order
    found = detect_errors(certainty_points(uncertainty, wrong))
    # The expected cumulative errors of a random order, walked through one decision at a time.
    cumulative, before = [], 0.0
    for value in np.unique(uncertainty):
        here = wrong[uncertainty == value]
        cumulative += [before + here.sum() * (i + 1) / len(here) for i in range(len(here))]
        before += here.sum()
    assert found.aurc == pytest.approx(np.mean(np.array(cumulative) / np.arange(1, len(wrong) + 1)))
    assert found.best_aurc == pytest.approx(area_of_order(np.sort(wrong)), abs=1e-12)
    assert found.best_aurc <= found.aurc + 1e-12
    if 0 < wrong.sum() < len(wrong):
        assert found.auroc == pytest.approx(roc_auc_score(wrong, uncertainty))
    else:
        assert np.isnan(found.auroc)


def test_no_order_at_all_is_chance() -> None:
    wrong = np.array([True, False, False, True])
    points = certainty_points(np.ones(4), wrong)
    found = detect_errors(points)
    assert found.aurc == pytest.approx(found.error_rate)
    assert found.gain == pytest.approx(0)
    assert found.auroc == pytest.approx(0.5)
    np.testing.assert_allclose(risk_at_coverage(points, COVERAGES), 0.5)


def test_risk_falls_with_coverage_when_errors_are_uncertain() -> None:
    uncertainty = np.arange(10.0)
    wrong = uncertainty >= 8
    points = certainty_points(uncertainty, wrong)
    np.testing.assert_allclose(
        risk_at_coverage(points, np.array([0.5, 0.8, 0.9, 1.0])), [0, 0, 1 / 9, 0.2], atol=1e-12
    )
    assert detect_errors(points).gain == pytest.approx(1)
    assert detect_errors(points).auroc == 1


def sigma_knows(seed: int, sign: float = 1.0):
    """Scores with noise of known size per pair, and a sigma that tells that size."""
    generator = np.random.default_rng(seed)
    targets = (generator.random((1500, 4)) < 0.5).astype(np.int8)
    noise = generator.uniform(0.3, 3, size=targets.shape)
    logits = (2 * targets - 1) + generator.normal(size=targets.shape) * noise
    return from_arrays(1 / (1 + np.exp(-logits)), targets, sigma=(noise**sign).astype(np.float32))


def test_a_sigma_that_knows_is_found_to_help() -> None:
    found = compare_uncertainties(sigma_knows(0), fitted_on=sigma_knows(1))
    assert [report.name for report in found.reports] == [
        "probability",
        "entropy",
        "threshold",
        "variance",
        "rank_mean",
        "fitted",
        "error_probability",
    ]
    baseline = found["probability"].pooled
    for name in ("variance", "rank_mean", "fitted"):
        assert found[name].pooled.auroc > baseline.auroc + 0.05
        assert found[name].pooled.aurc < baseline.aurc
        assert found[name].mean_label_auroc > found["probability"].mean_label_auroc + 0.05
    assert fit_error_model(sigma_knows(1)).sigma_weight > 0.3


def test_a_sigma_that_points_the_wrong_way_shows_and_the_fit_turns_it() -> None:
    found = compare_uncertainties(sigma_knows(0, sign=-1), fitted_on=sigma_knows(1, sign=-1))
    assert found["variance"].pooled.auroc < 0.4
    assert found["variance"].pooled_gain < 0
    assert found["fitted"].pooled.auroc > found["probability"].pooled.auroc + 0.05
    assert fit_error_model(sigma_knows(1, sign=-1)).sigma_weight < -0.3


def test_a_sigma_that_knows_nothing_adds_nothing() -> None:
    predictions, validation = make_predictions(1500, seed=0), make_predictions(1500, seed=1)
    found = compare_uncertainties(predictions, fitted_on=validation)
    assert found["variance"].pooled.auroc == pytest.approx(0.5, abs=0.03)
    assert found["fitted"].pooled.auroc == pytest.approx(found["threshold"].pooled.auroc, abs=0.01)


def test_figures_are_those_of_the_evaluated_decisions() -> None:
    predictions = with_gaps(make_predictions(400))
    thresholds = np.array([0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
    found = compare_uncertainties(predictions, thresholds)
    there = predictions.evaluated
    wrong = decide(predictions.scores, thresholds) != (predictions.targets == 1)
    assert found.num_pairs == there.sum()
    assert found.num_wrong == wrong[there].sum()
    for name, uncertainty in uncertainty_scores(predictions, thresholds).items():
        assert found[name].pooled.auroc == pytest.approx(roc_auc_score(wrong[there], uncertainty[there]))
        labels = [
            roc_auc_score(wrong[there[:, label], label], uncertainty[there[:, label], label])
            for label in range(6)
        ]
        np.testing.assert_allclose(found[name].label_aurocs, labels)
        assert found[name].mean_label_auroc == pytest.approx(np.mean(labels))
        assert found[name].risks[-1] == pytest.approx(wrong[there].mean())


def test_at_one_half_probability_entropy_and_threshold_are_one_order() -> None:
    found = compare_uncertainties(make_predictions())
    for name in ("entropy", "threshold"):
        assert found[name].pooled.auroc == pytest.approx(found["probability"].pooled.auroc)
    elsewhere = compare_uncertainties(make_predictions(), 0.9)
    assert elsewhere["threshold"].pooled.auroc != pytest.approx(elsewhere["probability"].pooled.auroc)


def test_uncertainties_by_hand() -> None:
    found = uncertainty_scores(from_arrays([[0.75, 0.5, 0.0]], [[1, 1, 1]], sigma=np.float32([[2, 3, 1]])))
    assert found["probability"].tolist() == [[0.5, 1, 0]]
    np.testing.assert_allclose(found["entropy"], [[0.5623351, np.log(2), 0]], atol=1e-7)
    np.testing.assert_allclose(found["threshold"][0, :2], [-np.log(3), 0], atol=1e-12)
    assert found["variance"].tolist() == [[4, 9, 1]]
    np.testing.assert_allclose(found["rank_mean"], [[1 / 2, 5 / 6, 1 / 6]])
    gaps = with_gaps(make_predictions())
    assert (uncertainty_scores(gaps)["rank_mean"][~gaps.evaluated] == 0).all()


def test_uncertainties_are_computed_in_double_precision() -> None:
    predictions = make_predictions(50, 3)
    found = uncertainty_scores(predictions, 0.3)
    scores = predictions.scores.astype(np.float64)
    entropy = -scores * np.log(scores) - (1 - scores) * np.log1p(-scores)
    np.testing.assert_allclose(found["probability"], 1 - np.abs(2 * scores - 1), rtol=1e-12)
    np.testing.assert_allclose(found["entropy"], entropy, rtol=1e-9)
    np.testing.assert_array_equal(found["variance"], predictions.sigma.astype(np.float64) ** 2)


def test_label_areas_gains_and_risks_are_those_of_the_order() -> None:
    predictions = make_predictions(60, 3)
    found = compare_uncertainties(predictions, 0.4)
    wrong = decide(predictions.scores, 0.4) != predictions.positive
    uncertainty = uncertainty_scores(predictions, 0.4)["variance"]
    areas = [area_of_order(wrong[np.argsort(uncertainty[:, label]), label]) for label in range(3)]
    report = found["variance"]
    assert report.mean_label_aurc == pytest.approx(np.mean(areas))
    ordered = wrong.ravel()[np.argsort(uncertainty.ravel())]
    error, best = wrong.mean(), area_of_order(np.sort(wrong.ravel()))
    assert report.pooled.aurc == pytest.approx(area_of_order(ordered))
    assert report.pooled_gain == pytest.approx((error - area_of_order(ordered)) / (error - best))
    np.testing.assert_allclose(found.coverages, np.arange(1, 21) / 20)
    # 180 pairs: every coverage is a whole number of them.
    np.testing.assert_allclose(
        report.risks, [ordered[: 9 * part].mean() for part in range(1, 21)], atol=1e-12
    )


def test_the_fit_is_a_logistic_regression_of_the_error() -> None:
    val, test = with_gaps(sigma_knows(1)), sigma_knows(0)
    thresholds = np.array([0.3, 0.5, 0.6, 0.4])
    model = fit_error_model(val, thresholds)
    logs = np.log(val.sigma.astype(np.float64))
    wrong = decide(val.scores, thresholds) != val.positive

    def evidence(predictions):
        scores = predictions.scores.astype(np.float64)
        distances = np.abs(np.log(scores / (1 - scores)) - np.log(thresholds / (1 - thresholds)))
        standard = (np.log(predictions.sigma.astype(np.float64)) - logs.mean(axis=0)) / logs.std(axis=0)
        return np.stack([distances, standard], axis=-1)

    there = val.evaluated
    regression = LogisticRegression().fit(evidence(val)[there], wrong[there])
    expected = regression.decision_function(evidence(test).reshape(-1, 2)).reshape(test.scores.shape)
    np.testing.assert_allclose(model.predict(test), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.log_sigma_means, logs.mean(axis=0), rtol=1e-12)


def test_of_many_pairs_every_second_or_third_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    val = sigma_knows(1)
    part = replace(
        val, names=val.names[::3], **{key: getattr(val, key)[::3] for key in ("scores", "targets", "sigma")}
    )
    one = from_arrays(val.scores[:, :1], val.targets[:, :1], sigma=val.sigma[:, :1])
    third = from_arrays(part.scores[:, :1], part.targets[:, :1], sigma=part.sigma[:, :1])
    expected = fit_error_model(third)
    for most in (500, 501, 700):
        monkeypatch.setattr("kmcl.evaluation.uncertainty._MOST_PAIRS_FITTED", most)
        found = fit_error_model(one)
        assert found.distance_weight == pytest.approx(expected.distance_weight, rel=0.02)
    monkeypatch.setattr("kmcl.evaluation.uncertainty._MOST_PAIRS_FITTED", 1500)
    assert fit_error_model(one).distance_weight != pytest.approx(expected.distance_weight, rel=1e-3)


def test_without_a_right_or_a_wrong_decision_the_distance_alone_orders() -> None:
    sigma = np.array([[1.0, 2.0], [3.0, 2.0]], np.float32)
    for targets in ([[1, 1], [0, 0]], [[0, 0], [1, 1]]):
        val = from_arrays([[0.9, 0.8], [0.1, 0.3]], targets, sigma=sigma)
        model = fit_error_model(val)
        expected = uncertainty_scores(val)["threshold"]
        np.testing.assert_allclose(model.predict(val), expected, atol=1e-12)
        # The second label's sigma never varies: standardised it is 0, not 0 / 0.
        assert model.log_sigma_deviations[1] == 1e-6


def test_there_is_no_gain_where_every_decision_is_right() -> None:
    points = certainty_points(np.arange(3.0), np.zeros(3, np.bool_))
    assert np.isnan(detect_errors(points).gain)
    empty = detect_errors(certainty_points(np.empty(0), np.empty(0, np.bool_)))
    assert len(empty) == 4
    assert np.isnan(empty).all()


def test_without_sigma_only_the_probability_is_judged() -> None:
    plain = replace(make_predictions(), sigma=None)
    found = compare_uncertainties(plain, fitted_on=plain)
    names = ["probability", "entropy", "threshold", "error_probability"]
    assert [report.name for report in found.reports] == names
    with pytest.raises(InputError, match="no sigma"):
        fit_error_model(plain)
    with pytest.raises(InputError, match="at least one image"):
        fit_error_model(make_predictions(num_images=0))


def test_no_errors_and_no_pairs_are_undefined() -> None:
    sigma = np.ones((2, 1), np.float32)
    right = compare_uncertainties(from_arrays([[0.9], [0.1]], [[1], [0]], sigma=sigma))
    assert np.isnan(right["variance"].pooled.auroc)
    assert right["variance"].pooled.aurc == 0
    nothing = from_arrays([[0.9], [0.1]], [[-1], [-1]], sigma=sigma)
    none = compare_uncertainties(nothing, fitted_on=nothing)
    assert none.num_pairs == 0
    assert np.isnan(none["fitted"].risks).all()
    json.dumps(none.to_json(), allow_nan=False)


def test_the_probability_of_an_error_is_comparable_between_labels() -> None:
    """A rare label whose scores stay below its threshold of 0.1 is near it, and nearly never wrong."""
    generator = np.random.default_rng(0)

    def draw() -> Predictions:
        shape = (2000, 2)
        probabilities = np.stack([generator.uniform(0.2, 0.8, 2000), generator.uniform(0.01, 0.09, 2000)], 1)
        return from_arrays(probabilities, generator.random(shape) < probabilities)

    thresholds = np.array([0.5, 0.1])
    val, test = draw(), draw()
    found = compare_uncertainties(test, thresholds, fitted_on=val)
    assert found["error_probability"].pooled.auroc > found["threshold"].pooled.auroc + 0.05
    calibrated = fit_temperatures(val, with_bias=True).calibrate(test).scores.astype(np.float64)
    decided = test.scores >= thresholds
    errors = np.where(decided, 1 - calibrated, calibrated)
    expected = detect_errors(certainty_points(errors.ravel(), (decided != test.positive).ravel()))
    assert found["error_probability"].pooled == expected
    assert "error_probability" not in {report.name for report in compare_uncertainties(test).reports}
