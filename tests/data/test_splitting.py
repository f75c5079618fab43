"""Iterative stratification: proportions of every label, whole groups, one seed one result."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmcl.data.arrays import ArrayImages
from kmcl.data.dataset import Split
from kmcl.data.readers.options import CutOptions
from kmcl.data.splitting import finish_splits, stratify
from kmcl.errors import InputError


def random_targets(seed: int, num_rows: int, num_labels: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.random((num_rows, num_labels)) < rng.beta(0.6, 6, num_labels)).astype(np.int8)


def test_every_label_keeps_its_proportion_and_rare_ones_exactly() -> None:
    targets = random_targets(0, 4000, 30)
    targets[:, 0] = 0
    targets[:20, 0] = 1
    part = stratify(targets, (0.7, 0.1, 0.2), seed=0)
    for index, fraction in enumerate((0.7, 0.1, 0.2)):
        inside = part == index
        assert abs(inside.mean() - fraction) < 0.005
        excess = targets[inside].sum(axis=0) - fraction * targets.sum(axis=0)
        assert np.abs(excess).max() <= 2
    assert targets[part == 1, 0].sum() == 2


def test_balance_is_far_better_than_a_random_cut() -> None:
    targets = random_targets(1, 1000, 20)
    wanted = 0.1 * targets.sum(axis=0)
    ours = np.abs(targets[stratify(targets, (0.9, 0.1), 0) == 1].sum(axis=0) - wanted).mean()
    chance = np.random.default_rng(0).random(1000) < 0.1
    assert ours < 0.3 * np.abs(targets[chance].sum(axis=0) - wanted).mean()


def test_groups_stay_whole_and_still_balance() -> None:
    targets = random_targets(2, 3000, 14)
    groups = np.array([f"patient {number}" for number in np.random.default_rng(0).geometric(1 / 150, 3000)])
    part = stratify(targets, (0.9, 0.1), 0, groups)
    assert not set(groups[part == 0]) & set(groups[part == 1])
    assert abs((part == 1).mean() - 0.1) < 0.02
    shares = targets[part == 1].sum(axis=0) / np.maximum(targets.sum(axis=0), 1)
    assert np.abs(shares[targets.sum(axis=0) > 100] - 0.1).max() < 0.05


def test_unknown_targets_do_not_count_as_carriers() -> None:
    targets = np.full((100, 1), -1, dtype=np.int8)
    targets[:10] = 1
    part = stratify(targets, (0.5, 0.5), 0)
    assert (part[:10] == 0).sum() == 5
    assert (part == 0).sum() == 50


def test_seed_decides_and_repeats() -> None:
    targets = random_targets(3, 500, 10)
    first, again, other = (stratify(targets, (0.8, 0.2), seed) for seed in (5, 5, 6))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@settings(max_examples=40, deadline=None)
@given(
    num_rows=st.integers(1, 60),
    num_labels=st.integers(1, 6),
    num_groups=st.integers(1, 60),
    seed=st.integers(0, 99),
)
def test_every_row_is_assigned_and_no_group_is_torn(
    num_rows: int, num_labels: int, num_groups: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    targets = rng.integers(-1, 2, (num_rows, num_labels)).astype(np.int8)
    groups = rng.integers(0, num_groups, num_rows).astype(str)
    part = stratify(targets, (0.6, 0.3, 0.1), seed, groups)
    assert part.shape == (num_rows,)
    assert set(part.tolist()) <= {0, 1, 2}
    for group in set(groups.tolist()):
        assert len(set(part[groups == group].tolist())) == 1


def test_many_rows_take_seconds() -> None:
    targets = random_targets(4, 30_000, 80)
    start = time.process_time()
    stratify(targets, (0.9, 0.1), 0)
    assert time.process_time() - start < 6


def test_validation_cut_comes_before_the_subset() -> None:
    targets = random_targets(5, 400, 8)
    train = Split(ArrayImages(np.zeros((400, 2, 2), dtype=np.uint8), "x"), targets)
    names = {}
    for subset in (50, 200):
        splits = finish_splits({"train": train}, CutOptions(subset=subset, val_fraction=0.25))
        assert list(splits) == ["train", "val"]
        assert len(splits["train"]) == subset
        assert len(splits["val"]) == 100
        names[subset] = {
            name: {splits[name].images.name(index) for index in range(len(splits[name]))} for name in splits
        }
    assert names[50]["val"] == names[200]["val"]
    assert names[50]["train"] < names[200]["train"]
    assert not names[200]["train"] & names[200]["val"]


def test_no_cut_when_asked_for_none_or_when_val_is_there() -> None:
    train = Split(ArrayImages(np.zeros((10, 2, 2), dtype=np.uint8), "x"), np.ones((10, 1), dtype=np.int8))
    assert list(finish_splits({"train": train}, CutOptions(val_fraction=0))) == ["train"]
    kept = finish_splits({"val": train, "train": train}, CutOptions(val_fraction=0.5))
    assert [len(split) for split in kept.values()] == [10, 10]
    with pytest.raises(InputError, match=r"val_fraction=0\.01 of 10 training images"):
        finish_splits({"train": train}, CutOptions(val_fraction=0.01))
