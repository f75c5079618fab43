"""All splits of a dataset as one, and their features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Dataset, Split
from kmcl.data.selection import JoinedImages
from kmcl.labelling.image_features import FeatureExtractor, ImageFeatures


def join_splits(dataset: Dataset) -> Split:
    """One split with the rows of all, in the dataset's order."""
    splits = list(dataset.splits.values())
    return Split(
        images=JoinedImages([split.images for split in splits]),
        targets=np.concatenate([split.targets for split in splits]),
        groups=_joined([split.groups for split in splits]),
        lines=_joined([split.lines for split in splits]),
    )


def describe_splits(dataset: Dataset, extractor: FeatureExtractor) -> ImageFeatures:
    """The features of all images; each split has its own file in the cache, which trainings share."""
    described = [extractor.describe(split, name) for name, split in dataset.splits.items() if len(split)]
    sizes = [len(split) for split in dataset.splits.values() if len(split)]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    return ImageFeatures(
        rows=np.concatenate([start + one.rows for start, one in zip(starts, described, strict=True)]),
        statistics=np.concatenate([one.statistics for one in described]),
        widths=described[0].widths,
        unreadable={
            start + row: reason
            for start, one in zip(starts, described, strict=True)
            for row, reason in one.unreadable.items()
        },
    )


def _joined(arrays: Sequence[npt.NDArray[Any] | None]) -> npt.NDArray[Any] | None:
    """None where one of them is."""
    present = [array for array in arrays if array is not None]
    return np.concatenate(present) if len(present) == len(arrays) else None
