"""The summary of a dataset: split sizes, labels per image, counts, correlations, image sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN, Dataset, Split
from kmcl.data.vectors import feature_dim
from kmcl.errors import InputError

SAMPLED_IMAGES = 64
SHOWN_PAIRS = 10


@dataclass(frozen=True)
class SplitSummary:
    """One split: how many images, how many without any label, and labels per image on average."""

    name: str
    num_images: int
    num_unlabelled: int
    labels_per_image: float
    num_groups: int | None


@dataclass(frozen=True)
class LabelSummary:
    """One label: its positives and its unannotated images in each split, and its share of all images."""

    name: str
    positives: dict[str, int]
    unknown: dict[str, int]
    prevalence: float


@dataclass(frozen=True)
class LabelPair:
    """Two labels, how many images carry both, and their correlation (phi)."""

    first: str
    second: str
    num_together: int
    correlation: float


@dataclass(frozen=True)
class ImageSizes:
    """Smallest, median and largest width and height of some images, evenly spaced over the dataset."""

    num_sampled: int
    num_unreadable: int
    widths: tuple[int, int, int] | None
    heights: tuple[int, int, int] | None


@dataclass(frozen=True)
class Description:
    """Everything `kmcl data describe` shows.

    labels_histogram: the share of the images that carry 0, 1, 2, ... labels.
    together:         L x L, how many images carry both labels; a label's own count on the diagonal.
    correlations:     the strongest pairs by absolute correlation, strongest first.
    notes:            what the reader left out or took for granted.
    feature_dim:      how many numbers each row has, where the dataset has feature vectors instead of images.
    """

    name: str
    splits: tuple[SplitSummary, ...]
    labels: tuple[LabelSummary, ...]
    labels_histogram: tuple[float, ...]
    together: tuple[tuple[int, ...], ...]
    correlations: tuple[LabelPair, ...]
    image_sizes: ImageSizes
    notes: tuple[str, ...] = ()
    feature_dim: int | None = None


def describe(dataset: Dataset, num_sampled: int = SAMPLED_IMAGES) -> Description:
    """Summarise a dataset; `num_sampled` images are decoded for their sizes."""
    targets = np.concatenate([split.targets for split in dataset.splits.values()])
    carries = targets == 1
    num_carried = carries.sum(axis=1)
    together = carries.T.astype(np.float64) @ carries.astype(np.float64)
    return Description(
        name=dataset.name,
        splits=tuple(_summarise(name, split) for name, split in dataset.splits.items()),
        labels=tuple(_summarise_label(dataset, index) for index in range(dataset.num_labels)),
        labels_histogram=tuple((np.bincount(num_carried) / max(len(targets), 1)).tolist()),
        together=tuple(tuple(int(count) for count in row) for row in together),
        correlations=_strongest_pairs(dataset.labels, targets, together),
        image_sizes=_image_sizes(dataset, num_sampled),
        notes=dataset.notes,
        feature_dim=feature_dim(dataset),
    )


def correlations(targets: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """L x L correlation (phi) of each pair of labels over the images where both are annotated.

    phi = (n n11 - n1. n.1) / sqrt(n1. (n - n1.) n.1 (n - n.1)), with n the images that have both annotated,
    n11 those that carry both, n1. and n.1 those that carry the one and the other. 0 where a label never
    varies.
    """
    carries = (targets == 1).astype(np.float64)
    known = (targets != UNKNOWN).astype(np.float64)
    num_LL = known.T @ known
    both_LL = carries.T @ carries
    first_LL = carries.T @ known
    second_LL = first_LL.T
    spread_LL = first_LL * (num_LL - first_LL) * second_LL * (num_LL - second_LL)
    covariance_LL = num_LL * both_LL - first_LL * second_LL
    phi: npt.NDArray[np.float64] = covariance_LL / np.sqrt(np.where(spread_LL > 0, spread_LL, np.inf))
    return phi


def _summarise(name: str, split: Split) -> SplitSummary:
    num_carried = (split.targets == 1).sum(axis=1)
    return SplitSummary(
        name=name,
        num_images=len(split),
        num_unlabelled=int((num_carried == 0).sum()),
        labels_per_image=float(num_carried.mean()) if len(split) else 0.0,
        num_groups=None if split.groups is None else len(np.unique(split.groups)),
    )


def _summarise_label(dataset: Dataset, index: int) -> LabelSummary:
    columns = {name: split.targets[:, index] for name, split in dataset.splits.items()}
    positives = {name: int((column == 1).sum()) for name, column in columns.items()}
    unknown = {name: int((column == UNKNOWN).sum()) for name, column in columns.items()}
    num_annotated = sum(len(column) for column in columns.values()) - sum(unknown.values())
    return LabelSummary(
        dataset.labels[index], positives, unknown, sum(positives.values()) / max(num_annotated, 1)
    )


def _strongest_pairs(
    labels: tuple[str, ...], targets: npt.NDArray[np.int8], together: npt.NDArray[np.float64]
) -> tuple[LabelPair, ...]:
    phi = correlations(targets)
    rows, columns = np.triu_indices(len(labels), k=1)
    order = np.argsort(-np.abs(phi[rows, columns]), kind="stable")[:SHOWN_PAIRS]
    return tuple(
        LabelPair(labels[row], labels[column], int(together[row, column]), float(phi[row, column]))
        for row, column in zip(rows[order], columns[order], strict=True)
    )


def _image_sizes(dataset: Dataset, num_sampled: int) -> ImageSizes:
    if feature_dim(dataset) is not None:
        return ImageSizes(0, 0, None, None)
    splits = [split for split in dataset.splits.values() if len(split)]
    places = [(split, index) for split in splits for index in _evenly(len(split), num_sampled, len(splits))]
    shapes = []
    for split, index in places:
        try:
            shapes.append(split.images.load(index).shape[:2])
        except InputError:
            continue
    if not shapes:
        return ImageSizes(len(places), len(places), None, None)
    heights, widths = np.array(shapes).T
    return ImageSizes(len(places), len(places) - len(shapes), _spread(widths), _spread(heights))


def _evenly(length: int, num_sampled: int, num_splits: int) -> list[int]:
    count = min(length, max(1, num_sampled // num_splits))
    return [int(index) for index in np.linspace(0, length - 1, count)]


def _spread(values: npt.NDArray[np.int64]) -> tuple[int, int, int]:
    return int(values.min()), int(np.median(values)), int(values.max())
