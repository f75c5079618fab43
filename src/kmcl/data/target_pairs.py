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
        rows_of_block, labels_of_block = np.nonzero(block == 1)
        rows.append(start + rows_of_block)
        labels.append(labels_of_block)
    return TargetPairs(np.concatenate(rows), np.concatenate(labels))
