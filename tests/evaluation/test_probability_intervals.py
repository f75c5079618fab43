"""Probability intervals: their coverage, and that they widen where val has less evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.probability_intervals import (
    ProbabilityIntervals,
    design_effects,
    fit_probability_intervals,
)
from kmcl.evaluation.temperature import fit_temperatures


def simulate(num_images: int, seed: int, sigma: np.ndarray | None = None, unknown: float = 0.0):
    """Two labels with true calibrations; the second is rare."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 2, (num_images, 2))
    truth = expit(logits / np.array([2.0, 0.8]) + np.array([0.5, -3.0]))
    targets = (rng.random(truth.shape) < truth).astype(np.int8)
    targets[rng.random(truth.shape) < unknown] = -1
    names = tuple(map(str, range(num_images)))
    scores = expit(logits).astype(np.float32)
    return Predictions(("a", "b"), names, scores, targets, sigma=sigma), truth


def test_nine_in_ten_intervals_contain_the_true_frequency():
    inside = []
    for seed in range(60):
        val, _ = simulate(400, seed)
        fitted = fit_temperatures(val, with_bias=True, prior_count=0)
        intervals = fit_probability_intervals(val, fitted.temperatures, fitted.biases)
        test, truth = simulate(50, 1000 + seed)
        interval = intervals.interval(test.scores, fitted.apply(test.scores), None)
        inside.append(((interval.low <= truth) & (truth <= interval.high)).mean(axis=0))
    coverage = np.mean(inside, axis=0)
    assert (coverage > 0.84).all()
    assert (coverage < 0.97).all()


def test_the_covariance_is_that_of_the_fit():
    """Against the spread of fits over repeated val sets, which Laplace's approximation predicts."""
    lines, predicted = [], []
    for seed in range(150):
        val, _ = simulate(600, seed)
        fitted = fit_temperatures(val, with_bias=True, prior_count=0)
        lines.append([1 / fitted.temperatures[0], fitted.biases[0]])
        covariance = fit_probability_intervals(val, fitted.temperatures, fitted.biases).covariances[0]
        predicted.append(np.sqrt(np.diag(covariance))[:2])
    np.testing.assert_allclose(np.std(lines, axis=0), np.mean(predicted, axis=0), rtol=0.2)


def test_less_val_and_an_unusual_sigma_widen_the_interval():
    rng = np.random.default_rng(3)
    sigma = np.exp(rng.normal(0.2, 0.1, (500, 2))).astype(np.float32)
    val, _ = simulate(500, 1, sigma)
    temperatures, biases = np.array([2.0, 0.8]), np.array([0.5, -3.0])
    intervals = fit_probability_intervals(val, temperatures, biases)
    scores = np.full((3, 2), 0.6, dtype=np.float32)
    probability = expit(np.log(0.6 / 0.4) / temperatures + biases) * np.ones((3, 1))
    usual = np.exp(0.2)
    low, high = intervals.interval(scores, probability, np.array([[usual] * 2, [1.6] * 2, [0.9] * 2]))
    assert (low < probability).all()
    assert (probability < high).all()
    widths = high - low
    assert (widths[1:] > 1.2 * widths[0]).all()
    few = Predictions(val.labels, val.names[:60], val.scores[:60], val.targets[:60], sigma=val.sigma[:60])
    fewer = fit_probability_intervals(few, temperatures, biases).interval(
        scores[:1], probability[:1], np.full((1, 2), usual)
    )
    assert (fewer.high - fewer.low > 1.5 * widths[0]).all()


def test_unknown_targets_tell_nothing():
    val, _ = simulate(300, 2, unknown=0.5)
    known = val.targets[:, 0] != -1
    only = Predictions(
        ("a",), tuple(np.array(val.names)[known]), val.scores[known, :1], val.targets[known, :1]
    )
    one = fit_probability_intervals(val, np.ones(2), np.zeros(2)).covariances[0]
    np.testing.assert_allclose(one, fit_probability_intervals(only, np.ones(1), np.zeros(1)).covariances[0])


def test_a_label_that_val_never_shows_is_unknown_not_certain():
    val = Predictions(("a",), ("x",), np.array([[0.2]], dtype=np.float32), np.array([[-1]], dtype=np.int8))
    intervals = fit_probability_intervals(val, np.ones(1), np.zeros(1))
    low, high = intervals.interval(np.array([[0.2]]), np.array([[0.2]]), None)
    assert low[0, 0] < 0.05
    assert high[0, 0] > 0.5


def test_without_val_the_interval_is_that_of_the_prior():
    """Standard deviations of 1 for the bias, 1/2 for the slope and for the weight of sigma."""
    val = Predictions(("a",), ("x",), np.array([[0.2]], dtype=np.float32), np.array([[-1]], dtype=np.int8))
    intervals = fit_probability_intervals(val, np.ones(1), np.zeros(1))
    np.testing.assert_allclose(intervals.covariances[0], np.diag([0.25, 1, 0.25]))
    assert (intervals.sigma_means.tolist(), intervals.sigma_deviations.tolist()) == ([0], [1])
    scores, probabilities = np.array([[0.7]]), np.array([[0.6]])
    slope, centre = np.log(0.7 / 0.3), np.log(0.6 / 0.4)
    for sigma, standardised in ((None, 0.0), (np.exp(2.0), 2.0), (np.exp(30.0), 10.0), (np.exp(-30.0), 10.0)):
        given = None if sigma is None else np.array([[sigma]])
        low, high = intervals.interval(scores, probabilities, given)
        reach = norm.ppf(0.95) * np.sqrt(0.25 * slope**2 + 1 + 0.25 * standardised**2)
        assert low[0, 0] == pytest.approx(expit(centre - reach), rel=1e-3)
        assert high[0, 0] == pytest.approx(expit(centre + reach), rel=1e-3)


def test_the_information_is_that_of_a_logistic_regression_on_logit_and_sigma():
    rng = np.random.default_rng(5)
    sigma = np.exp(rng.normal(0.3, 0.2, (80, 2))).astype(np.float32)
    sigma[:, 1] = 1.5
    val, _ = simulate(80, 6, sigma, unknown=0.3)
    temperatures, biases = np.array([1.5, 0.7]), np.array([0.2, -1.0])
    found = fit_probability_intervals(val, temperatures, biases)
    logs = np.log(sigma.astype(np.float64))
    np.testing.assert_allclose(found.sigma_means, logs.mean(axis=0))
    # A sigma that never varies has the least deviation that is allowed.
    np.testing.assert_allclose(found.sigma_deviations, [logs[:, 0].std(), 0.01])
    for label in range(2):
        information = np.diag([4.0, 1.0, 4.0])
        for image in np.flatnonzero(val.targets[:, label] >= 0):
            score = float(val.scores[image, label])
            logit = np.log(score / (1 - score))
            chance = expit(logit / temperatures[label] + biases[label])
            standard = (logs[image, label] - found.sigma_means[label]) / found.sigma_deviations[label]
            row = np.array([logit, 1.0, standard])
            information += chance * (1 - chance) * np.outer(row, row)
        expected = np.linalg.inv(information)
        np.testing.assert_allclose(found.covariances[label], expected, rtol=1e-9, atol=1e-12)


def test_a_variance_below_0_by_rounding_is_none():
    """A covariance of rank 1 is saved with six digits."""
    covariance = np.outer([1.0, -1.0, 0.0], [1.0, -1.0, 0.0])
    covariance[0, 0] -= 1e-9
    intervals = ProbabilityIntervals(covariance[None], np.zeros(1), np.ones(1))
    score = np.array([[expit(1.0)]])  # whose logit is 1
    low, high = intervals.interval(score, np.array([[0.3]]), None)
    assert (low[0, 0], high[0, 0]) == pytest.approx((0.3, 0.3))


def test_rows_and_back():
    val, _ = simulate(300, 4)
    intervals = fit_probability_intervals(val, np.ones(2), np.zeros(2))
    again = ProbabilityIntervals.from_rows(intervals.to_rows())
    for ours, theirs in zip(intervals, again, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    with pytest.raises(InputError, match="8 numbers"):
        ProbabilityIntervals.from_rows(((1.0, 2.0),))
    with pytest.raises(InputError, match=r"8 numbers per label; got \(8,\)"):
        ProbabilityIntervals.from_rows((1.0,) * 8)
    (row,) = ProbabilityIntervals(np.arange(9.0).reshape(1, 3, 3) / 3, np.ones(1), np.full(1, 2.0)).to_rows()
    assert row == (0.0, 1.0, 1.33333, 2.0, 2.33333, 2.66667, 1.0, 2.0)
    back = ProbabilityIntervals.from_rows((row,))
    np.testing.assert_array_equal(back.covariances[0], back.covariances[0].T)
    assert back.covariances[0, 2].tolist() == [2.0, 2.33333, 2.66667]


def simulate_patients(num_patients: int, seed: int, num_labels: int = 8):
    """Patients with one to many images, whose targets go together; half of the labels are rare.

    The truth is the frequency over patients at the image's logit, by quadrature over the patients' effects.
    """
    rng = np.random.default_rng(seed)
    patients = np.repeat(np.arange(num_patients), rng.geometric(0.25, num_patients))
    shape = num_patients, num_labels
    of_images = rng.normal(0, 1, (len(patients), num_labels))
    middle = np.where(np.arange(num_labels) % 2, -4.0, -1.0)
    logits = rng.normal(0, 1, shape)[patients] + of_images + middle
    line = 0.9 * logits + 0.3
    effects = rng.normal(0, 2, shape)[patients]
    targets = (rng.random(line.shape) < expit(line + effects)).astype(np.int8)
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)
    truth = expit(line[..., None] + 2 * nodes) @ (weights / weights.sum())
    names, labels = tuple(map(str, range(len(patients)))), tuple(map(str, range(num_labels)))
    scores = expit(logits).astype(np.float32)
    return Predictions(labels, names, scores, targets, groups=tuple(map(str, patients))), truth


def test_intervals_hold_where_images_come_in_groups():
    """Coverage over 80 fits each of frequent and rare labels, whose standard error is 2 %."""
    inside = {True: [], False: []}
    for seed in range(20):
        val, _ = simulate_patients(150, seed)
        test, truth = simulate_patients(30, 1000 + seed)
        fitted = fit_temperatures(val, with_bias=True)
        for knows_groups in inside:
            known = val if knows_groups else replace(val, groups=None)
            intervals = fit_probability_intervals(known, fitted.temperatures, fitted.biases)
            low, high = intervals.interval(test.scores, fitted.apply(test.scores), None)
            inside[knows_groups].append(((low <= truth) & (truth <= high)).mean(axis=0))
    frequent, rare = (np.mean(np.array(inside[True])[:, first::2]) for first in (0, 1))
    assert 0.84 < frequent < 0.98
    assert 0.84 < rare < 0.99
    assert np.mean(inside[False]) < 0.82


def test_copies_of_an_image_tell_nothing_new():
    val, _ = simulate(150, 7)
    fitted = fit_temperatures(val, with_bias=True, prior_count=0)
    copies = {name: np.repeat(getattr(val, name), 6, axis=0) for name in ("scores", "targets")}
    names = tuple(map(str, range(900)))
    groups = tuple(str(image // 6) for image in range(900))
    copied = Predictions(val.labels, names, copies["scores"], copies["targets"], groups=groups)
    line = fitted.temperatures, fitted.biases
    expected = fit_probability_intervals(val, *line).covariances
    np.testing.assert_allclose(fit_probability_intervals(copied, *line).covariances, expected, rtol=0.15)
    taken_as_new = fit_probability_intervals(replace(copied, groups=None), *line).covariances
    assert (taken_as_new[:, 1, 1] < 0.4 * expected[:, 1, 1]).all()


def test_the_design_effect_is_that_of_the_gradients_of_groups():
    """Against plain loops; the rare label's is drawn to the mean of both, and none is below 1."""
    val, _ = simulate_patients(40, 3, num_labels=2)
    unknown = np.random.default_rng(0).random(val.targets.shape) < 0.2
    val = replace(val, targets=np.where(unknown, -1, val.targets).astype(np.int8))
    fitted = fit_temperatures(val, with_bias=True)
    logits = np.log(val.scores.astype(np.float64)) - np.log1p(-val.scores.astype(np.float64))
    probabilities = expit(logits / fitted.temperatures + fitted.biases)
    own, having = [], []
    for label in range(2):
        information, gradients, positive = np.zeros((2, 2)), {}, set()
        for image, group in enumerate(val.groups):
            if unknown[image, label]:
                continue
            row, chance = np.array([logits[image, label], 1.0]), probabilities[image, label]
            information += chance * (1 - chance) * np.outer(row, row)
            gradients.setdefault(group, np.zeros(2))
            gradients[group] += (val.targets[image, label] - chance) * row
            positive |= {group} if val.targets[image, label] == 1 else set()
        variance = sum(np.outer(gradient, gradient) for gradient in gradients.values())
        own.append(np.trace(np.linalg.inv(information) @ variance) / 2)
        having.append(len(positive))
    mean = np.average(own, weights=having)
    expected = [(n * d + 10 * mean) / (n + 10) for n, d in zip(having, own, strict=True)]
    assert min(expected) > 1
    design = np.stack([logits, np.ones_like(logits)], axis=-1)
    np.testing.assert_allclose(design_effects(val, probabilities, design), expected, rtol=1e-6)
    alone = replace(val, groups=tuple("" for _ in val.groups), targets=np.zeros_like(val.targets))
    np.testing.assert_array_equal(design_effects(alone, 0 * probabilities + 0.01, design), [1, 1])
