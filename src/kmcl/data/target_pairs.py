"""Targets as pairs of an image and a label that it carries: a few an image, however many labels there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

BLOCK_ROWS = 1 << 14

Counts = npt.NDArray[np.int64]


class TargetPairs(NamedTuple):
    """Pairs in order of their rows, those of a row in order of its labels."""

    rows: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]


def blocks_of_rows(targets: npt.NDArray[np.int8]) -> Iterator[tuple[int, npt.NDArray[np.int8]]]:
    """Consecutive rows with the number of the first: what is computed of them stays small."""
    for start in range(0, len(targets), BLOCK_ROWS):
        yield start, targets[start : start + BLOCK_ROWS]


def present_pairs(targets: npt.NDArray[np.int8]) -> TargetPairs:
    """The labels that images carry (1)."""
    rows, labels = [np.zeros(0, dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for start, block in blocks_of_rows(targets):
        # Of a flat array numpy finds them six times as fast.
        rows_of_block, labels_of_block = np.divmod(np.flatnonzero(block == 1), max(targets.shape[1], 1))
        rows.append(start + rows_of_block)
        labels.append(labels_of_block)
    return TargetPairs(np.concatenate(rows), np.concatenate(labels))


def has_any(targets: npt.NDArray[np.int8], value: int = 1) -> bool:
    """Whether any target has a value: 1 present, 0 absent, -1 unknown."""
    return any(bool((block == value).any()) for _, block in blocks_of_rows(targets))


def count_images(targets: npt.NDArray[np.int8], value: int = 1) -> Counts:
    """How many images have a value for each label."""
    none = np.zeros(targets.shape[1], dtype=np.int64)
    return sum(((block == value).sum(axis=0) for _, block in blocks_of_rows(targets)), none)
