"""Logistic regression with wrong labels: its gradient, the rates it finds, and the labels it suspects."""

from __future__ import annotations

import numpy as np
import pytest

from kmcl.labelling.label_noise import NoiseRates, fit_noisy_logistic, probability_of_error
from kmcl.labelling.label_suspicion import suspect_labels

NOTHING = np.zeros((4000, 0))
NO_WEIGHTS = np.zeros((0, 2), dtype=bool)


def noisy_labels(
    added: float, missing: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Scores, true labels, given labels and true probabilities of two labels."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(4000, 2))
    probabilities = 1 / (1 + np.exp(-(6 * scores - [3.0, 5.0])))
    true = (rng.random(scores.shape) < probabilities).astype(np.int8)
    flipped = rng.random(scores.shape) < np.where(true == 1, missing, added)
    return scores, true, np.where(flipped, 1 - true, true).astype(np.int8), probabilities


@pytest.mark.parametrize(("added", "missing"), [(0.02, 0.3), (0.1, 0.1), (0.0, 0.0)])
def test_rates_and_probabilities_are_found(added: float, missing: float) -> None:
    scores, _, given, probabilities = noisy_labels(added, missing)
    model = fit_noisy_logistic(scores, NOTHING, NO_WEIGHTS, given)
    assert model.rates == pytest.approx((added, missing), abs=0.03)
    assert np.abs(model.probabilities(scores, NOTHING) - probabilities).mean() < 0.02


def test_without_noise_it_is_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    scores, _, given, _ = noisy_labels(0.05, 0.05)
    model = fit_noisy_logistic(scores, NOTHING, NO_WEIGHTS, given, noisy=False)
    assert model.rates == (0, 0)
    for label in range(2):
        oracle = LogisticRegression(C=1e6).fit(scores[:, [label]], given[:, label])
        assert model.slopes[label] == pytest.approx(oracle.coef_[0, 0], rel=0.02)
        assert model.biases[label] == pytest.approx(oracle.intercept_[0], rel=0.02)


def test_unknown_labels_count_for_nothing() -> None:
    scores, _, given, _ = noisy_labels(0.05, 0.05)
    shown = np.random.default_rng(1).random(given.shape) < 0.5
    with_unknown = np.where(shown, given, -1).astype(np.int8)
    garbled = with_unknown.copy()
    model = fit_noisy_logistic(scores, NOTHING, NO_WEIGHTS, with_unknown)
    assert model.rates == pytest.approx((0.05, 0.05), abs=0.03)
    is_wrong = probability_of_error(model.probabilities(scores, NOTHING), garbled, model.rates)
    assert (is_wrong[~shown] == 0).all()
    assert (is_wrong[shown] > 0).all()


def test_probability_of_error_by_counting() -> None:
    """Bayes' rule against frequencies of a simulation with one p."""
    rng = np.random.default_rng(0)
    true = rng.random(400_000) < 0.3
    given = np.where(true, rng.random(len(true)) >= 0.2, rng.random(len(true)) < 0.05)
    found = probability_of_error(
        np.full((2, 1), 0.3), np.array([[1], [0]], dtype=np.int8), NoiseRates(0.05, 0.2)
    )
    assert found[0, 0] == pytest.approx((~true[given]).mean(), abs=0.005)
    assert found[1, 0] == pytest.approx(true[~given].mean(), abs=0.005)


def related_labels(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of two labels that always occur together; the scores of the second say nothing."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(1500, 2))
    first = (rng.random(1500) < 1 / (1 + np.exp(-4 * scores[:, 0]))).astype(np.int8)
    return scores, np.stack([first, first], axis=1)


def test_other_labels_reveal_what_the_image_does_not() -> None:
    scores, true = related_labels()
    given = true.copy()
    omitted = np.flatnonzero(true[:, 1])[:40]
    given[omitted, 1] = 0
    suspicion = suspect_labels(scores, given)
    worst = np.argsort(-suspicion.is_wrong[:, 1])[: len(omitted)]
    assert np.isin(worst, omitted).mean() > 0.9
    by_image = probability_of_error(suspicion.from_image, given, suspicion.rates)[:, 1]
    assert np.isin(np.argsort(-by_image)[: len(omitted)], omitted).mean() < 0.3
    assert suspicion.pushes(int(omitted[0]), 1)[0] > 1
    assert suspicion.pushes(int(omitted[0]), 1)[1] == 0


def test_an_image_does_not_judge_its_own_label() -> None:
    """The second model is fitted in folds: a label flipped in one image changes little for that image."""
    scores, true = related_labels()
    given = true.copy()
    given[0, 1] = 1 - given[0, 1]
    before, after = suspect_labels(scores, true), suspect_labels(scores, given)
    assert after.from_both[0, 1] == pytest.approx(before.from_both[0, 1], abs=0.02)
