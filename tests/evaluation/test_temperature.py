from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from sklearn.linear_model import LogisticRegression

from evaluation.synthetic import assert_equal_fields, from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.decisions import decide
from kmcl.evaluation.ranking import label_average_precisions
from kmcl.evaluation.temperature import Temperatures, calibration, fit_temperatures, logit


def overconfident(num_images: int, temperatures, bias: float = 0.0, seed: int = 0, shift: float = 0.0):
    """Predictions that T and c would calibrate: their targets are drawn from sigmoid(z / T + c)."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(num_images, len(temperatures))) * 3 + shift
    truth = 1 / (1 + np.exp(-(logits / np.asarray(temperatures) + bias)))
    return from_arrays(1 / (1 + np.exp(-logits)), generator.random(logits.shape) < truth)


def test_known_temperatures_are_found_and_calibrate_new_images() -> None:
    temperatures = [0.7, 1.0, 2.0, 4.0]
    fitted = fit_temperatures(overconfident(20_000, temperatures))
    np.testing.assert_allclose(fitted.temperatures, temperatures, rtol=0.08)
    assert (fitted.biases == 0).all()
    fresh = overconfident(20_000, temperatures, seed=1)
    before, after = calibration(fresh), calibration(fitted.calibrate(fresh))
    assert after.mean_label_error < 0.02 < 0.06 < before.mean_label_error
    assert after.negative_log_likelihood < before.negative_log_likelihood


def test_without_a_prior_the_fit_is_the_most_likely_one() -> None:
    predictions = with_gaps(make_predictions(400, 3))
    fitted = fit_temperatures(predictions, prior_count=0)
    for label in range(3):
        there = predictions.evaluated[:, label]
        logits, truth = logit(predictions.scores[there, label]), predictions.positive[there, label]

        def unlikelihood(log_temperature: float, logits=logits, truth=truth) -> float:
            scaled = logits / np.exp(log_temperature)
            return float(np.logaddexp(0, np.where(truth, -scaled, scaled)).sum())

        best = minimize_scalar(unlikelihood, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9})
        assert fitted.temperatures[label] == pytest.approx(np.exp(best.x), rel=1e-5)


def test_without_a_prior_the_fit_with_bias_is_a_logistic_regression() -> None:
    predictions = make_predictions(400, 3)
    fitted = fit_temperatures(predictions, with_bias=True, prior_count=0)
    for label in range(3):
        regression = LogisticRegression(C=np.inf, tol=1e-10).fit(
            logit(predictions.scores[:, [label]]), predictions.targets[:, label]
        )
        assert 1 / fitted.temperatures[label] == pytest.approx(regression.coef_[0, 0], rel=1e-4)
        assert fitted.biases[label] == pytest.approx(regression.intercept_[0], rel=1e-4)


def test_only_a_bias_undoes_a_shift() -> None:
    shifted = overconfident(20_000, [1.0, 1.0], bias=-2.0, shift=-1.0)
    alone = calibration(fit_temperatures(shifted).calibrate(shifted)).mean_label_error
    with_bias = fit_temperatures(shifted, with_bias=True)
    np.testing.assert_allclose(with_bias.biases, -2, atol=0.15)
    assert calibration(with_bias.calibrate(shifted)).mean_label_error < 0.01 < 0.02 < alone


def test_a_label_with_few_positives_stays_near_the_others() -> None:
    common = overconfident(4000, [2.0] * 8, shift=-6.0)
    targets = common.targets.copy()
    positives = np.flatnonzero(targets[:, 0] == 1)
    targets[positives[np.argsort(common.scores[positives, 0])][:-3], 0] = -1
    predictions = replace(common, targets=targets)
    # The three surest positives left among the negatives: alone, the label asks for T far below 2.
    alone = fit_temperatures(predictions, prior_count=0)
    drawn = fit_temperatures(predictions)
    assert alone.temperatures[0] < 1.6
    assert abs(drawn.temperatures[0] - 2) < abs(alone.temperatures[0] - 2) / 2
    np.testing.assert_allclose(drawn.temperatures[1:], alone.temperatures[1:], rtol=0.02)


def test_ten_positives_weigh_as_much_as_the_prior() -> None:
    others = overconfident(3000, [1.0] * 30, seed=4)
    own = overconfident(3000, [1.5], seed=5)
    kept = np.concatenate([np.flatnonzero(own.targets[:, 0] == value)[:10] for value in (0, 1)])
    targets = np.full((3000, 1), -1, np.int8)
    targets[kept] = own.targets[kept]
    predictions = from_arrays(
        np.hstack([others.scores, own.scores]),
        np.hstack([others.targets, targets]),
    )
    alone = 1 / fit_temperatures(predictions, prior_count=0).temperatures[-1]
    fitted = fit_temperatures(predictions, prior_count=10)
    drawn, shared = 1 / fitted.temperatures[-1], 1 / fitted.shared_temperature
    assert (drawn - shared) / (alone - shared) == pytest.approx(0.5, abs=0.15)


def test_labels_that_say_nothing_share_and_are_named() -> None:
    predictions = overconfident(500, [2.0, 2.0, 2.0, 4.0], bias=-0.5)
    targets = predictions.targets.copy()
    targets[:, 1] = 0
    targets[:, 2] = 1
    for with_bias in (False, True):
        fitted = fit_temperatures(replace(predictions, targets=targets), with_bias)
        assert fitted.shared == ("label1", "label2")
        assert fitted.temperatures.shape == fitted.biases.shape == (4,)
        assert (fitted.temperatures[1:3] == fitted.shared_temperature).all()
        assert (fitted.biases[1:3] == fitted.shared_bias).all()
        # The last label has its own values, in its own place.
        assert fitted.temperatures[3] > 1.3 * fitted.temperatures[0]
        assert (fitted.shared_bias != 0) == with_bias


def test_nothing_known_leaves_probabilities_as_they_are() -> None:
    predictions = make_predictions(20, 2)
    nothing = fit_temperatures(replace(predictions, targets=np.full((20, 2), -1, np.int8)), with_bias=True)
    assert nothing.temperatures.tolist() == [1, 1]
    assert nothing.biases.tolist() == [0, 0]
    assert nothing.shared == predictions.labels


def test_a_temperature_stays_inside_its_bounds() -> None:
    """Scores that are far too sure, or far too unsure, with nothing to draw them to 1."""
    generator = np.random.default_rng(0)
    coin = (generator.random((200, 1)) < 0.5).astype(np.int8)
    unsure = from_arrays(0.5 + 0.001 * (2 * coin - 1), coin)
    assert fit_temperatures(unsure, prior_count=0).temperatures.tolist() == [pytest.approx(0.05)]
    sure = from_arrays(generator.choice([1e-6, 1 - 1e-6], size=(200, 1)), coin)
    assert fit_temperatures(sure, prior_count=0).temperatures.tolist() == [pytest.approx(20)]


def test_at_a_bound_the_bias_is_the_best_for_that_bound() -> None:
    """Against an optimiser with the same bounds."""
    generator = np.random.default_rng(0)
    coin = (generator.random((200, 1)) < 0.3).astype(np.int8)
    unsure = from_arrays(0.5 + 0.001 * (2 * coin - 1), coin)
    sure = from_arrays(generator.choice([1e-6, 1 - 1e-6], size=(200, 1)), coin)
    for predictions, temperature in ((unsure, 0.05), (sure, 20.0)):
        logits, truth = logit(predictions.scores[:, 0]), coin[:, 0] == 1

        def cost(line: np.ndarray, logits=logits, truth=truth) -> float:
            scaled = line[0] * logits + line[1]
            return float(np.logaddexp(0, np.where(truth, -scaled, scaled)).sum())

        bounds = [(1 / 20, 20), (None, None)]
        best = minimize(cost, [1.0, 0.0], method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-14})
        fitted = fit_temperatures(predictions, with_bias=True, prior_count=0)
        assert fitted.temperatures[0] == pytest.approx(temperature)
        assert fitted.biases[0] == pytest.approx(best.x[1], abs=3e-4)


@pytest.mark.parametrize("seed", range(4))
def test_scores_far_too_sure_are_fitted_as_well(seed: int) -> None:
    """From there, whole steps of Newton's method lead away from the optimum."""
    generator = np.random.default_rng(seed)
    targets = (generator.random((400, 1)) < 0.3).astype(np.int8)
    flipped = generator.random(targets.shape) < np.where(targets, 0.3, 0.05)
    logits = (2 * (targets ^ flipped) - 1) * generator.uniform(3, 14, targets.shape) + 2 * seed - 3
    predictions = from_arrays(1 / (1 + np.exp(-logits)), targets)
    fitted = fit_temperatures(predictions, with_bias=True, prior_count=0)
    regression = LogisticRegression(C=np.inf, tol=1e-10).fit(logit(predictions.scores), targets[:, 0])
    assert 1 / fitted.temperatures[0] == pytest.approx(regression.coef_[0, 0], rel=1e-4)
    assert fitted.biases[0] == pytest.approx(regression.intercept_[0], rel=1e-3, abs=1e-4)


def test_the_fit_minimises_its_penalised_likelihood() -> None:
    """Against a general optimiser, with the prior: slopes around that of all labels, itself around 1."""
    predictions = overconfident(300, [3.0], bias=0.7, shift=-1.0)
    logits, truth = logit(predictions.scores[:, 0]), predictions.positive[:, 0]
    rarer = min(truth.sum(), (~truth).sum())

    def fit(centre: np.ndarray, count: float) -> np.ndarray:
        chance = 1 / (1 + np.exp(-(centre[0] * logits + centre[1])))
        weight = chance * (1 - chance)
        curvature = np.array([(weight * logits**2).sum(), weight.sum()])

        def cost(line: np.ndarray) -> float:
            scaled = line[0] * logits + line[1]
            fits = np.logaddexp(0, np.where(truth, -scaled, scaled)).sum()
            return float(fits + 0.5 * count / rarer * ((curvature + 1) * (line - centre) ** 2).sum())

        return minimize(cost, centre, method="BFGS", options={"gtol": 1e-7}).x

    overall = fit(np.array([1.0, 0.0]), 10)
    line = fit(overall, 10)
    fitted = fit_temperatures(predictions, with_bias=True)
    found = [1 / fitted.shared_temperature, fitted.shared_bias]
    np.testing.assert_allclose(found, overall, rtol=1e-4)
    np.testing.assert_allclose([1 / fitted.temperatures[0], fitted.biases[0]], line, rtol=1e-4)
    assert fitted.shared == ()


def test_perfectly_separated_and_saturated_scores_stay_finite() -> None:
    perfect = from_arrays([[1.0], [0.0]] * 20, [[1], [0]] * 20)
    opposite = from_arrays([[1.0], [0.0]] * 20, [[0], [1]] * 20)
    for with_bias in (False, True):
        sure = fit_temperatures(perfect, with_bias)
        assert 0.05 <= sure.temperatures[0] <= 1
        unsure = fit_temperatures(opposite, with_bias)
        assert 5 < unsure.temperatures[0] <= 20
        assert np.isfinite(unsure.biases).all()
    assert 0.05 <= fit_temperatures(perfect, prior_count=0).temperatures[0] <= 1


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_a_temperature_keeps_rankings_and_decisions_at_one_half(seed: int) -> None:
    predictions = with_gaps(make_predictions(80, 4, seed=seed))
    calibrated = fit_temperatures(predictions).calibrate(predictions)
    np.testing.assert_allclose(
        label_average_precisions(calibrated), label_average_precisions(predictions), rtol=1e-6
    )
    np.testing.assert_array_equal(decide(calibrated.scores, 0.5), decide(predictions.scores, 0.5))


def test_temperature_one_changes_nothing() -> None:
    predictions = make_predictions()
    ones = Temperatures(predictions.labels, np.ones(6), np.zeros(6), 1.0, 0.0, ())
    np.testing.assert_allclose(ones.apply(predictions.scores), predictions.scores, rtol=1e-6)


def test_temperatures_survive_json() -> None:
    fitted = fit_temperatures(make_predictions(), with_bias=True)
    again = Temperatures.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False)))
    scores = make_predictions(seed=9).scores
    np.testing.assert_array_equal(again.apply(scores), fitted.apply(scores))
    assert_equal_fields(again, fitted)
    assert isinstance(again.shared, tuple)


def test_foreign_input_is_refused() -> None:
    predictions = make_predictions()
    fitted = fit_temperatures(predictions)
    for change in ({"biases": [0.0]}, {"temperatures": [0.0] * 6}, {"extra": 1}, {"labels": None}):
        with pytest.raises(InputError, match="temperatures"):
            Temperatures.from_json(fitted.to_json() | change)
    for name, wrong in (("temperatures", np.inf), ("temperatures", -1.0), ("biases", np.inf)):
        with pytest.raises(InputError, match="temperatures must be finite and above 0"):
            Temperatures.from_json(fitted.to_json() | {name: [1.0] * 5 + [wrong]})
    for name in ("temperatures", "biases"):
        with pytest.raises(InputError, match="temperatures and biases must be 6 values each"):
            Temperatures.from_json(fitted.to_json() | {name: [1.0] * 5})
    for name in ("labels", "shared", "temperatures", "biases"):
        with pytest.raises(InputError, match=f"not a set of temperatures: .*{name}"):
            Temperatures.from_json({key: value for key, value in fitted.to_json().items() if key != name})
    with pytest.raises(InputError, match=r"temperatures are for labels.*predictions have"):
        fitted.calibrate(make_predictions(num_labels=5))
    with pytest.raises(InputError, match="prior_count must be at least 0, got -1"):
        fit_temperatures(predictions, prior_count=-1)
