"""Calibration and threshold from positive and unlabelled scores."""

from __future__ import annotations

import numpy as np
import pytest

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import sigmoid
from kmcl.evaluation.unlabelled import USUAL_SHARE, calibrate_unlabelled, estimate_share


def scores(share: float, num_unlabelled: int, num_positive: int, gap: float = 3.0, seed: int = 0):
    """Positive and unlabelled scores, and which of the latter are positive."""
    rng = np.random.default_rng(seed)
    present = rng.random(num_unlabelled) < share
    unlabelled = rng.normal(size=num_unlabelled) + gap * present
    return rng.normal(size=num_positive) + gap, unlabelled, present


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.45])
def test_the_share_is_found_where_scores_separate(share: float):
    positive, unlabelled, _ = scores(share, 20000, 400, gap=4.0)
    assert share * 0.6 < estimate_share(positive, unlabelled) < share * 1.3


def test_of_few_positives_the_usual_share_says_more_than_they_do():
    positive, unlabelled, _ = scores(0.4, 5000, 2, gap=0.0)
    assert USUAL_SHARE < estimate_share(positive, unlabelled) < 2 * USUAL_SHARE
    assert 0.01 < estimate_share(positive, unlabelled, 0.01) < 0.02


def test_the_usual_share_counts_as_forty_positives_below_and_as_five_above():
    """The ratio is 1/5 wherever the threshold is; its geometric mean with a usual share of equal weight."""
    unlabelled = np.concatenate([np.full(20, 2.0), np.zeros(80)])
    assert estimate_share(np.ones(40), unlabelled, 1 / 80) == pytest.approx(1 / 20)
    assert estimate_share(np.ones(5), unlabelled, 0.45) == pytest.approx(0.2)
    rare = np.concatenate([np.full(2, 2.0), np.zeros(98)])
    assert estimate_share(np.ones(5), rare, 0.45) == pytest.approx((0.02 * USUAL_SHARE) ** 0.5)


@pytest.mark.parametrize("share", [0.05, 0.3])
def test_probabilities_are_those_that_knowing_all_labels_gives(share: float):
    """Two normal distributions a gap of 3 apart: the true logit is 3 f - 4.5 + logit(share)."""
    positive, unlabelled, _ = scores(share, 40000, 4000)
    found = calibrate_unlabelled(positive, unlabelled, share)
    points = np.array([0.0, 1.5, 3.0])
    truth = sigmoid(3 * points - 4.5 + np.log(share / (1 - share)))
    np.testing.assert_allclose(sigmoid(found.slope * points + found.bias), truth, atol=0.05)


def test_the_threshold_is_near_that_of_the_best_f1():
    positive, unlabelled, present = scores(0.1, 40000, 2000)
    found = calibrate_unlabelled(positive, unlabelled, 0.1)
    probabilities = sigmoid(found.slope * unlabelled + found.bias)

    def f1(threshold: float) -> float:
        predicted = probabilities >= threshold
        return 2 * (predicted & present).sum() / (predicted.sum() + present.sum())

    best = max(f1(threshold) for threshold in np.linspace(0.02, 0.98, 97))
    assert f1(found.threshold) > best - 0.02


def test_the_covariance_is_its_formula_by_loops():
    positive, unlabelled, _ = scores(0.2, 300, 15)
    found = calibrate_unlabelled(positive, unlabelled, 0.2)
    curvature, noise = np.zeros((2, 2)), np.zeros((2, 2))
    for score in unlabelled:
        z = found.slope * score + found.bias
        p = 1 / (1 + np.exp(-z))
        curvature += p * (1 - p) * np.outer([z, 1], [z, 1]) / len(unlabelled)
    for score in positive:
        z = found.slope * score + found.bias
        noise += 0.2**2 / len(positive) * np.outer([z, 1], [z, 1]) / len(positive)
    inverse = np.linalg.inv(curvature)
    np.testing.assert_allclose(found.covariance, inverse @ noise @ inverse, rtol=1e-4)


@pytest.mark.parametrize("num_positive", [2, 5, 20, 100])
def test_more_examples_narrow_the_covariance_and_all_stay_finite(num_positive: int):
    positive, unlabelled, _ = scores(0.1, 3000, num_positive)
    found = calibrate_unlabelled(positive, unlabelled)
    assert all(np.isfinite([found.slope, found.bias, found.threshold, found.share]))
    assert 0 < found.threshold < 1
    assert np.linalg.eigvalsh(found.covariance).min() >= -1e-9
    more = calibrate_unlabelled(np.tile(positive, 4), unlabelled, found.share)
    fewer = calibrate_unlabelled(positive, unlabelled, found.share)
    np.testing.assert_allclose(more.covariance, fewer.covariance / 4, rtol=1e-6)


def test_examples_above_everything_and_equal_scores_have_an_answer():
    separate = calibrate_unlabelled(np.array([9.0, 10.0]), np.zeros(50) + np.arange(50) / 50)
    assert np.isfinite(separate.slope)
    assert separate.slope > 0
    equal = calibrate_unlabelled(np.ones(3), np.ones(40))
    assert np.isfinite([equal.slope, equal.bias]).all()


def test_wrong_shares_and_no_scores_are_refused():
    with pytest.raises(InputError, match="share must be above 0 and below 1; got 1"):
        calibrate_unlabelled(np.ones(3), np.zeros(4), 1.0)
    with pytest.raises(InputError, match="needs scores; got 0 and 4"):
        calibrate_unlabelled(np.ones(0), np.zeros(4))
