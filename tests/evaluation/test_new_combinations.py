"""Combinations that training did not have: against loops, and planted cases."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.new_combinations import find_combinations, list_new_pairs, measure_combinations


def kind_by_loops(row, label, predictions, train):
    present = [k for k in range(predictions.num_labels) if predictions.targets[row, k] == 1]
    if not predictions.positive[row, label] or len(present) < 2 or not (train[:, label] == 1).any():
        return None
    if any(all(image[k] == 1 for k in present) for image in train):
        return "seen"
    for other in present:
        if other != label and not any(image[label] == 1 and image[other] == 1 for image in train):
            return "new pair"
    return "new whole"


def test_kinds_are_those_of_a_loop():
    predictions = with_gaps(make_predictions(120, 6, prevalence=0.4))
    train = make_predictions(12, 6, seed=4, prevalence=0.35).targets.copy()
    train[:, 5] = -1
    train[::4, 2] = -1
    found = find_combinations(predictions, train)
    counts = dict.fromkeys(("seen", "new whole", "new pair", None), 0)
    for row in range(120):
        for label in range(6):
            kind = kind_by_loops(row, label, predictions, train)
            masks = (found.seen[row, label], found.new_whole[row, label], found.new_pair[row, label])
            assert masks == (kind == "seen", kind == "new whole", kind == "new pair")
            counts[kind] += 1
    assert all(counts.values()), counts


def test_new_pairs_are_listed_with_what_was_found():
    targets = np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1], [1, 0, 1]])
    train = np.array([[1, 0, 0], [0, 1, 0], [1, 0, 1]], dtype=np.int8)
    decided = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]], dtype=bool)
    found = list_new_pairs(from_arrays(np.full((4, 3), 0.5), targets), decided, train)
    assert found == [(0, 1, 2, 2, 1), (1, 2, 1, 0, 1)]


def test_each_label_is_compared_with_itself():
    """Label 1 is easy, label 0 is hard: a mixture that differs between new and seen is no difference."""
    generator = np.random.default_rng(0)
    num_images = 600
    targets = np.ones((num_images, 2), dtype=np.int8)
    found = np.stack([generator.random(num_images) < 0.3, generator.random(num_images) < 0.9], axis=1)
    is_new = generator.random((num_images, 2)) < np.array([0.5, 0.1])
    predictions = from_arrays(found * 0.8 + 0.1, targets)
    contrast = measure_combinations(predictions, found, is_new, ~is_new, generator, 0.95).recall
    plain = found[is_new].mean() - found[~is_new].mean()
    assert plain < -0.2
    assert not contrast.difference.excludes_zero
    expected = [found[~is_new[:, label], label].mean() for label in range(2)]
    weights = is_new.sum(axis=0)
    assert contrast.first == pytest.approx(found[is_new].mean())
    assert contrast.second == pytest.approx((expected * weights).sum() / weights.sum())
    assert (contrast.num_first, contrast.num_second) == (is_new.sum(), (~is_new).sum())


def test_labels_that_fail_in_new_combinations_are_found():
    predictions = make_predictions(500, 4, prevalence=0.5, signal=2.0)
    positive = predictions.positive
    new = positive & (np.arange(500) % 5 == 0)[:, None]
    decided = (predictions.scores > 0.5) & ~(new & (np.arange(500) % 10 == 0)[:, None])
    found = measure_combinations(predictions, decided, new, positive & ~new, np.random.default_rng(0), 0.95)
    assert found.recall.difference.high < -0.2
    assert not found.ranking.difference.excludes_zero


def test_ranks_are_shares_of_the_negatives_below():
    predictions = with_gaps(make_predictions(80, 3, prevalence=0.5, decimals=1))
    positive = predictions.positive
    new = positive & (np.arange(80) < 40)[:, None]
    found = measure_combinations(
        predictions, positive, new, positive & ~new, np.random.default_rng(0), 0.9, 5
    )
    ranks = []
    for row, label in np.argwhere(new):
        below = [
            float(predictions.scores[other, label] < predictions.scores[row, label])
            + 0.5 * float(predictions.scores[other, label] == predictions.scores[row, label])
            for other in range(80)
            if predictions.negative[other, label]
        ]
        ranks.append(np.mean(below))
    assert found.ranking.first == pytest.approx(np.mean(ranks))


def test_nothing_new_is_undefined():
    predictions = make_predictions(50, 3, prevalence=0.5)
    nothing = np.zeros((50, 3), dtype=bool)
    found = measure_combinations(
        predictions, nothing, nothing, predictions.positive, np.random.default_rng(0), 0.95
    )
    assert np.isnan(found.recall.first)
    assert found.recall.difference is None
    assert found.recall.num_first == 0
    with pytest.raises(InputError, match=r"train must have 3 labels, got shape \(5, 2\)"):
        find_combinations(predictions, np.zeros((5, 2), dtype=np.int8))
