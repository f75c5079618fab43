"""Stores over arrays, selections of rows and nested subsets."""

from __future__ import annotations

import pickle
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from kmcl.data.arrays import ArrayImages, MappedImages
from kmcl.data.dataset import Dataset, Split
from kmcl.data.selection import join_splits, select, take_fraction, take_subset
from kmcl.errors import InputError


def numbered_split(count: int) -> Split:
    """A split whose image i is filled with i and whose target, group and line tell i."""
    pixels = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None], (count, 4, 3))
    return Split(
        ArrayImages(pixels, "numbers"),
        np.arange(count, dtype=np.int8)[:, None],
        ignored=(np.arange(count) % 2 == 0)[:, None],
        groups=np.array([f"g{index}" for index in range(count)]),
        lines=np.arange(count, dtype=np.int64) + 2,
    )


def test_grey_and_colour_arrays_load_as_rgb(tmp_path: Path) -> None:
    grey = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    colour = np.arange(72, dtype=np.uint8).reshape(2, 3, 4, 3)
    assert np.array_equal(ArrayImages(grey, "x").load(1), np.repeat(grey[1][:, :, None], 3, axis=2))
    assert np.array_equal(ArrayImages(colour, "x").load(1), colour[1])
    np.save(tmp_path / "a.npy", colour)
    mapped = MappedImages(tmp_path / "a.npy", "x", 2)
    assert np.array_equal(mapped.load(1), colour[1])
    assert mapped.load(1).flags.writeable
    again = pickle.loads(pickle.dumps(mapped))
    assert len(pickle.dumps(mapped)) < 1000
    assert np.array_equal(again.load(0), colour[0])
    assert again.name(1) == "x[1]"


def test_selection_takes_every_column_along() -> None:
    chosen = select(numbered_split(9), np.array([7, 2, 5]))
    again = select(chosen, np.array([2, 0]))
    assert [int(again.images.load(index)[0, 0, 0]) for index in range(2)] == [5, 7]
    assert again.targets[:, 0].tolist() == [5, 7]
    assert again.images.name(0) == "numbers[5]"
    assert again.ignored is not None
    assert again.ignored[:, 0].tolist() == [False, False]
    assert again.groups is not None
    assert again.groups.tolist() == ["g5", "g7"]
    assert again.lines is not None
    assert again.lines.tolist() == [7, 9]


def test_joined_splits_keep_every_column() -> None:
    whole = numbered_split(9)
    parts = {name: select(whole, np.arange(9)[start::2]) for start, name in enumerate(("train", "test"))}
    order = [0, 2, 4, 6, 8, 1, 3, 5, 7]
    joined = join_splits(Dataset("numbers", ("a",), parts))
    assert [int(joined.images.load(row)[0, 0, 0]) for row in range(9)] == order
    for field in fields(Split):
        if field.name != "images":
            assert np.array_equal(getattr(joined, field.name), getattr(whole, field.name)[order]), field.name
    assert joined.trusted_targets[:, 0].tolist() == [-1] * 5 + [1, 3, 5, 7]


def test_joined_splits_ignore_what_some_of_them_ignore_and_keep_the_groups_of_each() -> None:
    whole = numbered_split(4)
    bare = replace(whole, ignored=None, groups=None, lines=None)
    joined = join_splits(Dataset("numbers", ("a",), {"train": bare, "test": whole}))
    assert joined.ignored is not None
    assert joined.ignored[:, 0].tolist() == [False] * 4 + [True, False, True, False]
    assert joined.groups is not None
    assert whole.groups is not None
    assert joined.groups.tolist() == [""] * 4 + whole.groups.tolist()
    assert joined.lines is None
    assert join_splits(Dataset("numbers", ("a",), {"train": bare, "test": bare})).ignored is None


def test_subsets_of_one_seed_are_nested_and_of_another_differ() -> None:
    split = numbered_split(100)
    rows = {size: set(take_subset(split, size, 3).targets[:, 0].tolist()) for size in (1, 10, 40, 100)}
    assert rows[1] < rows[10] < rows[40] < rows[100]
    assert [len(found) for found in rows.values()] == [1, 10, 40, 100]
    assert rows[40] != set(take_subset(split, 40, 4).targets[:, 0].tolist())
    ordered = take_subset(split, 40, 3).targets[:, 0]
    assert (np.diff(ordered) > 0).all()
    with pytest.raises(InputError, match="subset=101 is more than the 100"):
        take_subset(split, 101, 0)


def test_fractions_of_one_seed_are_nested_and_have_their_share() -> None:
    split = replace(numbered_split(100), groups=None)
    rows = {part: set(take_fraction(split, part, 3).targets[:, 0].tolist()) for part in (0.001, 0.1, 0.5, 1)}
    assert rows[0.001] < rows[0.1] < rows[0.5] < rows[1]
    assert [len(found) for found in rows.values()] == [1, 10, 50, 100]
    assert rows[0.5] != set(take_fraction(split, 0.5, 4).targets[:, 0].tolist())
    assert (np.diff(take_fraction(split, 0.5, 3).targets[:, 0]) > 0).all()
    with pytest.raises(InputError, match="fraction must be above 0 and at most 1, got 0"):
        take_fraction(split, 0, 0)


def test_fractions_keep_groups_whole() -> None:
    groups = np.array([f"patient {row % 13}" for row in range(100)])
    split = replace(numbered_split(100), groups=groups)
    smaller, larger = take_fraction(split, 0.3, 0), take_fraction(split, 0.6, 0)
    for part, most in ((smaller, 30), (larger, 60)):
        assert most - 8 < len(part) <= most
        outside = set(range(100)) - set(part.targets[:, 0].tolist())
        assert set(part.groups.tolist()).isdisjoint(groups[sorted(outside)])
    assert set(smaller.groups.tolist()) < set(larger.groups.tolist())
