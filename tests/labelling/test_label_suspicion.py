"""Logistic regression of labels, beliefs in given ones, and the labels that are suspected."""

from __future__ import annotations

import numpy as np
import pytest

from kmcl.labelling.label_regression import (
    AS_EVIDENCE,
    FOR_RANKING,
    believed,
    fit_label_regression,
    shares_of_mistakes,
)
from kmcl.labelling.label_suspicion import probability_of_error, suspect_labels

NOTHING = np.zeros((4000, 0))
NO_WEIGHTS = np.zeros((0, 2), dtype=bool)


def drawn_labels() -> tuple[np.ndarray, np.ndarray]:
    """Scores and labels of two labels."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(4000, 2))
    probabilities = 1 / (1 + np.exp(-(2 * scores - [1.0, 2.0])))
    return scores, (rng.random(scores.shape) < probabilities).astype(np.int8)


def test_it_is_logistic_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    scores, given = drawn_labels()
    model = fit_label_regression(scores, NOTHING, NO_WEIGHTS, given)
    for label in range(2):
        oracle = LogisticRegression(C=1e6).fit(scores[:, [label]], given[:, label])
        assert model.slopes[label] == pytest.approx(oracle.coef_[0, 0], rel=0.02)
        assert model.biases[label] == pytest.approx(oracle.intercept_[0], rel=0.02)


def test_unknown_labels_count_for_nothing() -> None:
    scores, given = drawn_labels()
    shown = np.random.default_rng(1).random(len(given)) < 0.5
    with_unknown = np.where(shown[:, None], given, -1).astype(np.int8)
    model = fit_label_regression(scores, NOTHING, NO_WEIGHTS, with_unknown)
    alone = fit_label_regression(scores[shown], NOTHING[shown], NO_WEIGHTS, given[shown])
    np.testing.assert_allclose(model.slopes, alone.slopes, rtol=0.01)
    np.testing.assert_allclose(model.biases, alone.biases, rtol=0.01)
    p = model.probabilities(scores, NOTHING)
    mistakes = shares_of_mistakes(with_unknown, AS_EVIDENCE)
    assert (probability_of_error(p, with_unknown)[~shown] == 0).all()
    np.testing.assert_array_equal(believed(p, with_unknown, mistakes)[~shown], p[~shown])


def test_belief_by_counting() -> None:
    """Bayes' rule against frequencies of a simulation with one p."""
    rng = np.random.default_rng(0)
    true = rng.random(400_000) < 0.3
    given = np.where(true, rng.random(len(true)) >= 0.08, rng.random(len(true)) < 0.02)
    p, values = np.full((2, 1), 0.3), np.array([[1], [0]], dtype=np.int8)
    found = believed(p, values, np.array([0.02]), forgotten=0.08)
    assert found[0, 0] == pytest.approx(true[given].mean(), abs=0.005)
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
    by_image = probability_of_error(suspicion.from_image, given)[:, 1]
    assert np.isin(np.argsort(-by_image)[: len(omitted)], omitted).mean() < 0.3
    of_labels, of_group = suspicion.pushes(int(omitted[0]), 1)
    assert of_labels[0] > 1
    assert of_labels[1] == of_group == 0


def test_the_images_of_a_group_reveal_an_omission() -> None:
    """Groups of five images with the same labels; the images themselves say nothing."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(200), 5).astype(str)
    true = np.repeat(rng.random((200, 2)) < 0.3, 5, axis=0).astype(np.int8)
    given = true.copy()
    omitted = np.flatnonzero(true[:, 1])[::10]
    given[omitted, 1] = 0
    scores = rng.normal(size=true.shape)
    suspicion = suspect_labels(scores, given, groups)
    worst = np.argsort(-suspicion.is_wrong[:, 1])[: len(omitted)]
    assert np.isin(worst, omitted).mean() > 0.9
    assert suspicion.pushes(int(omitted[0]), 1)[1] > 1
    alone = suspect_labels(scores, given).is_wrong[:, 1]
    assert np.isin(np.argsort(-alone)[: len(omitted)], omitted).mean() < 0.3


def test_an_image_does_not_judge_its_own_label() -> None:
    """The second model is fitted in folds: a label flipped in one image changes little for that image."""
    scores, true = related_labels()
    given = true.copy()
    given[0, 1] = 1 - given[0, 1]
    before, after = suspect_labels(scores, true), suspect_labels(scores, given)
    assert after.from_all[0, 1] == pytest.approx(before.from_all[0, 1], abs=0.02)


def test_shares_of_mistakes_by_hand() -> None:
    """Half of the images, one in a hundred, and five of a thousand, which half of the given ones bound."""
    targets = np.zeros((2000, 3), dtype=np.int8)
    targets[:1000, 0] = targets[:20, 1] = targets[:5, 2] = 1
    found = shares_of_mistakes(targets, AS_EVIDENCE)
    assert found[0] == pytest.approx(0.05, rel=0.01)
    assert found[1] == pytest.approx(0.05 * (20 / 1980) ** 0.5, rel=0.03)
    assert found[2] == pytest.approx(0.5 * 5 / 1995, rel=0.11)
    targets[1990:] = -1
    np.testing.assert_allclose(shares_of_mistakes(targets, AS_EVIDENCE), found, rtol=0.02)
    ranked = shares_of_mistakes(targets, FOR_RANKING)
    assert ranked[1] == pytest.approx(20 / 1970, rel=0.03)
    assert ranked[0] == pytest.approx(0.05, rel=0.02)


def test_an_image_that_says_nothing_does_not_condemn_a_rare_label() -> None:
    """Ten of 3,000 images have a label that cannot be seen: each is 0.3 % likely, none is surely wrong."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(3000, 2))
    given = np.zeros((3000, 2), dtype=np.int8)
    given[:, 0] = rng.random(3000) < 1 / (1 + np.exp(-3 * scores[:, 0]))
    given[:10, 1] = 1
    suspicion = suspect_labels(scores, given)
    assert suspicion.from_all[:10, 1].max() < 0.05
    assert suspicion.is_wrong[:10, 1].max() < 0.8
    # A frequent label that contradicts its image comes first.
    contradicted = np.flatnonzero((given[:, 0] == 1) & (scores[:, 0] < -1.5))
    assert suspicion.is_wrong[contradicted, 0].max() > suspicion.is_wrong[:10, 1].max()
