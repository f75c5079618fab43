"""Feature vectors as the samples of a dataset, in the place of images: embeddings of text or sound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Dataset, ImageStore
from kmcl.data.selection import JoinedImages, SelectedImages
from kmcl.errors import InputError

__all__ = [
    "MOST_FEATURES",
    "FeatureVectors",
    "feature_dim",
    "feature_dim_of",
    "float_rows",
    "refuse_vectors",
    "take_vectors",
]

Vectors = npt.NDArray[np.float32]

MOST_FEATURES = 1_000_000


@dataclass(frozen=True)
class FeatureVectors:
    """Feature vectors by position, with which a `Split` has no images.

    rows:   N x D, finite; kept as float32.
    source: names the rows that have no id, `source[12]`.
    ids:    N names of the rows.
    """

    rows: Vectors
    source: str = "features"
    ids: npt.NDArray[np.str_] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", float_rows(self.rows, self.source))
        if self.ids is not None:
            object.__setattr__(self, "ids", np.asarray(self.ids).astype(np.str_))
            if self.ids.shape != (len(self.rows),):
                raise InputError(
                    f"{self.source}: ids must be one name per row; got shape {self.ids.shape} for "
                    f"{len(self.rows)} rows"
                )

    def __len__(self) -> int:
        return len(self.rows)

    def name(self, index: int) -> str:
        return f"{self.source}[{index}]" if self.ids is None else str(self.ids[index])

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        raise InputError(f"{self.name(index)}: is a feature vector, not an image")


def float_rows(values: npt.ArrayLike, source: str) -> Vectors:
    """Values as N x D float32; an InputError that names the row and the column of what is none."""
    array: npt.NDArray[Any] = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{source}: features must be numbers; got {array.dtype}")
    if array.ndim != 2:
        raise InputError(f"{source}: features must be rows x numbers (N x D); got shape {array.shape}")
    if not 1 <= array.shape[1] <= MOST_FEATURES:
        raise InputError(f"{source}: a row must have 1 to {MOST_FEATURES} features; got {array.shape[1]}")
    if not len(array):
        raise InputError(f"{source}: has no rows")
    with np.errstate(over="ignore"):
        rows: Vectors = np.ascontiguousarray(array, dtype=np.float32)
    bad = ~np.isfinite(rows).all(axis=1)
    if bad.any():
        row = int(bad.argmax())
        column = int((~np.isfinite(rows[row])).argmax())
        value = array[row, column]
        why = "is not finite" if not np.isfinite(value) else "is too large for float32"
        more = f"; {int(bad.sum())} of {len(rows)} rows have such values" if bad.sum() > 1 else ""
        raise InputError(f"{source}: row {row}, feature {column}: {value} {why}{more} (both count from 0)")
    return rows


def take_vectors(images: ImageStore, indices: npt.NDArray[np.int64]) -> Vectors:
    """The feature vectors at some positions of a store; an InputError where it has images."""
    if isinstance(images, FeatureVectors):
        return images.rows[indices]
    if isinstance(images, SelectedImages):
        return take_vectors(images.images, images.indices[indices])
    if isinstance(images, JoinedImages) and images.parts:
        taken = np.empty((len(indices), feature_dim_of(images) or 0), dtype=np.float32)
        part_of = np.searchsorted(images.starts, indices, side="right") - 1
        for number, part in enumerate(images.parts):
            slots = np.flatnonzero(part_of == number)
            taken[slots] = take_vectors(part, indices[slots] - images.starts[number])
        return taken
    raise InputError(f"{images.name(0) if len(images) else 'the data'}: is an image, not a feature vector")


def feature_dim_of(images: ImageStore) -> int | None:
    """How many numbers each feature vector of a store has; None where it has images."""
    if isinstance(images, FeatureVectors):
        return int(images.rows.shape[1])
    if isinstance(images, SelectedImages):
        return feature_dim_of(images.images)
    if isinstance(images, JoinedImages) and images.parts:
        return feature_dim_of(images.parts[0])
    return None


def feature_dim(dataset: Dataset) -> int | None:
    """How many numbers each feature vector of a dataset has; None for a dataset of images."""
    widths = {name: feature_dim_of(split.images) for name, split in dataset.splits.items()}
    if len(set(widths.values())) > 1:
        found = ", ".join(f"{name} {width or 'images'}" for name, width in widths.items())
        raise InputError(f"{dataset.name}: its splits have feature vectors of different lengths: {found}")
    return next(iter(widths.values()), None)


def refuse_vectors(dataset: Dataset) -> None:
    """For formats of images."""
    if feature_dim(dataset) is not None:
        raise InputError(f"{dataset.name}: has feature vectors, which a format for images cannot hold")
