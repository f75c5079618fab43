"""The set of digits: designed co-occurrence, disjoint handwriting, one seed one set of pixels."""

from __future__ import annotations

import time
from random import Random

import numpy as np
import pytest

from kmcl.data import Dataset
from kmcl.data.readers import digits
from kmcl.data.readers.digits import COOCCURRING, DIGIT_LABELS, EXCLUSIVE, affinities, draw_digits


def draw(**options: int) -> Dataset:
    """Not opened by name, which gives all tests the same scenes."""
    return digits.read_digits(digits.DigitsOptions(**options))


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return draw(size=600)


def test_shapes_labels_and_sizes(dataset: Dataset) -> None:
    assert dataset.labels == DIGIT_LABELS
    assert {name: len(split) for name, split in dataset.splits.items()} == {
        "train": 600,
        "val": 100,
        "test": 200,
    }
    train = dataset.splits["train"]
    assert train.targets.shape == (600, 10)
    assert set(train.targets.sum(axis=1).tolist()) == {1, 2, 3, 4}
    assert train.images.load(5).shape == (64, 64, 3)
    assert train.images.load(5).std() > 5


def test_cooccurring_digits_meet_often_and_exclusive_ones_never(dataset: Dataset) -> None:
    rng, affinity = Random(0), affinities()
    targets = np.zeros((4000, 10), dtype=np.int64)
    for row in targets:
        row[draw_digits(rng, affinity)] = 1
    together = targets.T @ targets
    expected = np.outer(targets.sum(axis=0), targets.sum(axis=0)) / len(targets)
    for first, second in COOCCURRING:
        assert together[first, second] > 1.5 * expected[first, second]
    for first, second in EXCLUSIVE:
        assert together[first, second] == 0
    assert targets[:, 0].sum() > 2 * targets[:, 9].sum()
    for split in dataset.splits.values():
        for first, second in EXCLUSIVE:
            assert not (split.targets[:, first] & split.targets[:, second]).any()


def test_handwritten_instances_of_the_splits_are_disjoint() -> None:
    numbers = np.random.default_rng(0).integers(0, 10, 1797)
    chosen = [np.concatenate(digits._instances_of_split(numbers, split, seed=0)) for split in range(3)]
    everything = np.concatenate(chosen)
    assert len(everything) == len(set(everything.tolist())) == 1797
    assert len(chosen[0]) > len(chosen[2]) > len(chosen[1]) > 200


def test_seed_decides_and_more_scenes_continue_the_fewer(dataset: Dataset) -> None:
    smaller = draw(size=30).splits["train"]
    other = draw(size=30, seed=1).splits["train"]
    train = dataset.splits["train"]
    assert np.array_equal(smaller.targets, train.targets[:30])
    assert all(np.array_equal(smaller.images.load(row), train.images.load(row)) for row in range(30))
    assert not np.array_equal(other.images.load(0), train.images.load(0))
    assert not np.array_equal(train.images.load(0), dataset.splits["test"].images.load(0))


def test_label_shows_in_the_pixels(dataset: Dataset) -> None:
    """More digits, more ink: the brightness above the ground grows with their number."""
    train = dataset.splits["train"]
    pixels = np.stack([train.images.load(row) for row in range(600)]).astype(np.float64).mean(axis=3)
    ink = (pixels - np.median(pixels, axis=(1, 2), keepdims=True)).mean(axis=(1, 2))
    count = train.targets.sum(axis=1)
    assert np.corrcoef(ink, count)[0, 1] > 0.3


def test_the_full_set_takes_seconds() -> None:
    draw(size=10)
    start = time.process_time()
    draw(size=1000)
    assert time.process_time() - start < 4
