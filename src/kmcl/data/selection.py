"""Parts of a split: any selection of its rows, nested random subsets; all splits of a dataset as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN, Dataset, ImageStore, Split
from kmcl.data.groups import join_groups, units_of_rows
from kmcl.errors import InputError

BLOCK_LABELS = 128


@dataclass(frozen=True)
class SelectedImages:
    """Some images of another store, in a given order."""

    images: ImageStore
    indices: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.images.name(int(self.indices[index]))

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return self.images.load(int(self.indices[index]), min_side)


class JoinedImages:
    """The images of several stores, one after the other."""

    def __init__(self, parts: Sequence[ImageStore]) -> None:
        self.parts = tuple(parts)
        self.starts = np.cumsum([0, *(len(part) for part in parts)], dtype=np.int64)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def locate(self, index: int) -> tuple[ImageStore, int]:
        """The store of an image, and its position there."""
        part = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.parts[part], index - int(self.starts[part])

    def name(self, index: int) -> str:
        store, position = self.locate(index)
        return store.name(position)

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        store, position = self.locate(index)
        return store.load(position, min_side)


def join_splits(dataset: Dataset) -> Split:
    """One split with the rows of all, in the dataset's order.

    Lines are None where a split has none; a split without `ignored` ignores nothing.
    """
    splits = list(dataset.splits.values())
    ignored = None
    if any(split.ignored is not None for split in splits):
        ignored = np.concatenate(
            [np.zeros(s.targets.shape, np.bool_) if s.ignored is None else s.ignored for s in splits]
        )
    lines = [split.lines for split in splits if split.lines is not None]
    return Split(
        images=JoinedImages([split.images for split in splits]),
        targets=np.concatenate([split.targets for split in splits]),
        ignored=ignored,
        groups=join_groups(splits),
        lines=np.concatenate(lines) if len(lines) == len(splits) else None,
    )


def with_unknown_labels(split: Split, number: int) -> Split:
    """The split with so many more labels, of which nothing is known."""
    more = ((0, 0), (0, number))
    ignored = None if split.ignored is None else np.pad(split.ignored, more)
    return replace(split, targets=np.pad(split.targets, more, constant_values=UNKNOWN), ignored=ignored)


def select(split: Split, indices: npt.NDArray[np.int64]) -> Split:
    """The rows of a split at `indices`, in that order."""
    images = split.images
    if isinstance(images, SelectedImages):
        chosen = SelectedImages(images.images, images.indices[indices])
    else:
        chosen = SelectedImages(images, np.asarray(indices, dtype=np.int64))
    return Split(
        images=chosen,
        targets=split.targets[indices],
        ignored=None if split.ignored is None else split.ignored[indices],
        groups=None if split.groups is None else split.groups[indices],
        lines=None if split.lines is None else split.lines[indices],
    )


def select_parts(split: Split, part_of_row: npt.NDArray[np.int64], num_parts: int) -> list[Split]:
    """The rows of each part, in the split's order."""
    return [select(split, np.flatnonzero(part_of_row == part)) for part in range(num_parts)]


def divide_in_place(split: Split, part_of_row: npt.NDArray[np.int64], num_parts: int) -> list[Split]:
    """As `select_parts`, but the parts share the targets of the split, which are reordered.

    A large matrix is thus never in memory twice; the split itself must not be used any more.
    """
    order = np.argsort(part_of_row, kind="stable")
    targets = split.targets
    for first in range(0, targets.shape[1], BLOCK_LABELS):
        block = targets[:, first : first + BLOCK_LABELS]
        block[:] = block[order]
    ends = np.cumsum(np.bincount(part_of_row, minlength=num_parts))
    parts = []
    for part, (start, end) in enumerate(pairwise((0, *ends.tolist()))):
        chosen = select(replace(split, targets=targets[:, :0]), np.flatnonzero(part_of_row == part))
        parts.append(replace(chosen, targets=targets[start:end]))
    return parts


def take_subset(split: Split, size: int, seed: int) -> Split:
    """A random subset of `size` rows, in the split's order.

    For one seed the subsets are nested: every subset is contained in each larger one.
    """
    if size > len(split):
        raise InputError(f"subset={size} is more than the {len(split)} training images there are")
    order = np.random.default_rng(seed).permutation(len(split))
    return select(split, np.sort(order[:size]))


def take_fraction(split: Split, fraction: float, seed: int) -> Split:
    """A random part of the rows, in the split's order; images of one group stay together.

    For one seed the parts are nested: every part is contained in each larger one. Without groups it has
    `fraction` of the rows, rounded; with groups as many of them, in random order, as fit into that, and at
    least one.
    """
    if not 0 < fraction <= 1:
        raise InputError(f"fraction must be above 0 and at most 1, got {fraction}")
    unit_of_row = units_of_rows(split.groups, len(split))
    sizes = np.bincount(unit_of_row)
    order = np.random.default_rng(seed).permutation(len(sizes))
    wanted = max(1, round(fraction * len(split)))
    num_units = max(1, int(np.searchsorted(np.cumsum(sizes[order]), wanted, side="right")))
    is_chosen = np.zeros(len(sizes), dtype=bool)
    is_chosen[order[:num_units]] = True
    return select(split, np.flatnonzero(is_chosen[unit_of_row]))
