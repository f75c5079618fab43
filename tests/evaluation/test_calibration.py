from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss, log_loss

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.encoders.torchvision_operators import declare_missing_operators
from kmcl.errors import InputError
from kmcl.evaluation.temperature import calibration, reliability_curve


def test_expected_calibration_error_is_torchmetrics() -> None:
    declare_missing_operators()
    from torchmetrics.functional.classification import binary_calibration_error

    predictions = with_gaps(make_predictions(400))
    found = calibration(predictions, num_bins=10)
    there = predictions.evaluated

    def expected(pairs) -> float:
        scores, truth = (
            torch.from_numpy(array[pairs][there[pairs]])
            for array in (predictions.scores, predictions.targets)
        )
        return float(binary_calibration_error(scores, truth, n_bins=10))

    assert found.pooled_error == pytest.approx(expected(np.s_[:]), abs=1e-6)
    labels = [expected(np.s_[:, label]) for label in range(6)]
    np.testing.assert_allclose(found.label_errors, labels, atol=1e-6)
    assert found.mean_label_error == pytest.approx(np.mean(labels), abs=1e-6)


@pytest.mark.parametrize(("binning", "strategy"), [("equal_width", "uniform"), ("equal_mass", "quantile")])
def test_reliability_curve_is_scikit_learns(binning, strategy: str) -> None:
    predictions = make_predictions(1000, 1)
    scores, positive = predictions.scores[:, 0], predictions.positive[:, 0]
    curve = reliability_curve(scores, positive, 8, binning)
    rates, means = calibration_curve(positive, scores.astype(np.float64), n_bins=8, strategy=strategy)
    # scikit-learn interpolates between two scores at a quantile, which may move one pair to the next bin.
    tolerance = 1e-7 if binning == "equal_width" else 0.01
    np.testing.assert_allclose(curve.positive_rates, rates, atol=tolerance)
    np.testing.assert_allclose(curve.mean_scores, means, atol=tolerance)


def test_a_curve_by_hand() -> None:
    curve = reliability_curve(
        np.array([0.0, 0.2, 0.5, 1.0]), np.array([False, True, False, True]), num_bins=2
    )
    assert curve.lower.tolist() == [0, 0.5]
    assert curve.upper.tolist() == [0.5, 1]
    assert curve.counts.tolist() == [2, 2]
    assert curve.mean_scores.tolist() == pytest.approx([0.1, 0.75])
    assert curve.positive_rates.tolist() == [0.5, 0.5]
    assert curve.expected_calibration_error == pytest.approx((0.4 + 0.25) / 2)


def test_an_empty_bin_is_undefined_and_weighs_nothing() -> None:
    curve = reliability_curve(np.array([0.1, 0.9]), np.array([False, True]), num_bins=3)
    assert curve.counts.tolist() == [1, 0, 1]
    assert np.isnan([curve.mean_scores[1], curve.positive_rates[1]]).all()
    assert curve.expected_calibration_error == pytest.approx(0.1)


@given(
    arrays(np.float32, st.integers(1, 50), elements=st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])),
    st.integers(1, 12),
    st.sampled_from(["equal_width", "equal_mass"]),
)
def test_every_pair_falls_in_the_bin_whose_bounds_hold_it(scores, num_bins: int, binning) -> None:
    curve = reliability_curve(scores, scores > 0.3, num_bins, binning)
    assert curve.counts.sum() == len(scores)
    filled = curve.counts > 0
    assert (curve.mean_scores[filled] >= curve.lower[filled] - 1e-9).all()
    assert (curve.mean_scores[filled] <= curve.upper[filled] + 1e-9).all()
    assert len(curve.counts) <= num_bins
    if binning == "equal_mass":
        assert filled.all()
        # The mean of a bin's own values can be matched exactly when every bin is one value.
        if len(curve.counts) == len(np.unique(scores)):
            np.testing.assert_allclose(np.sort(np.unique(scores)), curve.mean_scores)


def test_equal_mass_bins_hold_about_as_many_pairs_each() -> None:
    predictions = make_predictions(1000, 1)
    curve = reliability_curve(predictions.scores[:, 0], predictions.positive[:, 0], 10, "equal_mass")
    assert len(curve.counts) == 10
    assert abs(curve.counts - 100).max() <= 1
    # A bin begins with a score that there is.
    assert np.isin(curve.lower[1:], predictions.scores[:, 0].astype(np.float64)).all()


def test_perfect_probabilities_have_nearly_no_error_and_shifted_ones_have() -> None:
    generator = np.random.default_rng(0)
    scores = generator.random((20_000, 2)).astype(np.float32)
    targets = (generator.random(scores.shape) < scores).astype(np.int8)
    assert calibration(from_arrays(scores, targets)).mean_label_error < 0.02
    assert calibration(from_arrays(scores**3, targets)).mean_label_error > 0.2


def test_brier_score_and_likelihood_are_scikit_learns() -> None:
    predictions = with_gaps(make_predictions())
    there = predictions.evaluated
    scores, truth = predictions.scores[there].astype(np.float64), predictions.targets[there]
    found = calibration(predictions)
    assert found.brier_score == pytest.approx(brier_score_loss(truth, scores), rel=1e-12)
    assert found.negative_log_likelihood == pytest.approx(log_loss(truth, scores), rel=1e-12)


def test_saturated_wrong_probabilities_stay_finite() -> None:
    found = calibration(from_arrays([[1.0], [0.0]], [[0], [1]]))
    assert found.negative_log_likelihood == pytest.approx(24 * np.log(2))
    assert found.pooled_error == 1


def test_a_label_nobody_annotated_is_undefined_and_left_out() -> None:
    found = calibration(from_arrays([[0.25, 0.5], [0.25, 0.5]], [[1, -1], [0, -1]]))
    assert np.isnan(found.label_errors[1])
    assert found.mean_label_error == found.pooled_error == pytest.approx(0.25)
    assert json.loads(json.dumps(found.to_json(), allow_nan=False))["label_errors"] == [0.25, None]


def test_equal_mass_errors_are_those_of_bins_of_two_pairs() -> None:
    """Twelve different scores in six bins: each bin is two neighbours of the ranking."""
    predictions = make_predictions(12, 3, prevalence=0.5)
    found = calibration(predictions, num_bins=6)

    def error(scores: np.ndarray, positive: np.ndarray, at_once: int) -> float:
        order = np.argsort(scores)
        gaps = (scores.astype(np.float64) - positive)[order].reshape(-1, at_once).sum(axis=1)
        return float(np.abs(gaps).sum() / len(scores))

    for label in range(3):
        scores, positive = predictions.scores[:, label], predictions.positive[:, label]
        assert found.label_equal_mass_errors[label] == pytest.approx(error(scores, positive, 2), abs=0.1)
        curve = reliability_curve(scores, positive, 6, "equal_mass")
        assert found.label_equal_mass_errors[label] == curve.expected_calibration_error
        assert found.label_errors[label] == (
            reliability_curve(scores, positive, 6, "equal_width").expected_calibration_error
        )
    assert found.mean_label_equal_mass_error == pytest.approx(found.label_equal_mass_errors.mean())
    pooled = reliability_curve(predictions.scores.ravel(), predictions.positive.ravel(), 6, "equal_mass")
    assert found.pooled_equal_mass_error == pooled.expected_calibration_error
    assert found.num_bins == len(found.pooled_curve.counts) == 6


def test_fifteen_bins_of_equal_width_unless_given() -> None:
    predictions = make_predictions(300, 1)
    found = calibration(predictions)
    assert (found.num_bins, len(found.pooled_curve.counts)) == (15, 15)
    curve = reliability_curve(predictions.scores[:, 0], predictions.positive[:, 0])
    np.testing.assert_allclose(curve.upper, np.arange(1, 16) / 15)
    one = reliability_curve(predictions.scores[:, 0], predictions.positive[:, 0], 1)
    assert one.counts.tolist() == [300]
    assert (one.lower.tolist(), one.upper.tolist()) == ([0], [1])


@pytest.mark.parametrize("binning", ["equal_width", "equal_mass"])
def test_no_pair_at_all_has_no_error(binning) -> None:
    curve = reliability_curve(np.empty(0), np.empty(0, dtype=np.bool_), 4, binning)
    assert curve.counts.tolist() == [0] * 4
    assert np.isnan(curve.expected_calibration_error)


def test_impossible_bins_are_refused() -> None:
    with pytest.raises(InputError, match="num_bins must be at least 1, got 0"):
        calibration(make_predictions(), num_bins=0)
    with pytest.raises(InputError, match=r"binning.*'log'"):
        reliability_curve(np.array([0.5]), np.array([True]), binning="log")
