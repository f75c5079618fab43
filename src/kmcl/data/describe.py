"""The summary of a dataset: split sizes, labels per image, counts, correlations, image sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.cooccurrence import PairNumbers
from kmcl.data.dataset import UNKNOWN, Dataset, Split
from kmcl.data.groups import named_groups
from kmcl.data.target_pairs import Counts, blocks_of_rows, count_images
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
    counted = [_count(split.targets) for split in dataset.splits.values()]
    num_images = sum(len(split) for split in dataset.splits.values())
    num_carried = np.concatenate([found.num_carried for found in counted])
    numbers = PairNumbers.of([split.targets for split in dataset.splits.values()])
    return Description(
        name=dataset.name,
        splits=tuple(
            _summarise(name, split, found)
            for (name, split), found in zip(dataset.splits.items(), counted, strict=True)
        ),
        labels=_summarise_labels(dataset, counted),
        labels_histogram=tuple((np.bincount(num_carried) / max(num_images, 1)).tolist()),
        together=tuple(map(tuple, numbers.num_both.astype(np.int64).tolist())),
        correlations=_strongest_pairs(dataset.labels, numbers),
        image_sizes=_image_sizes(dataset, num_sampled),
        notes=dataset.notes,
        feature_dim=feature_dim(dataset),
    )


class _Counts(NamedTuple):
    """Of one split: labels of each image; images that carry each label, and that have it unknown."""

    num_carried: Counts
    positives: Counts
    unknown: Counts


def _count(targets: npt.NDArray[np.int8]) -> _Counts:
    num_carried = [(block == 1).sum(axis=1) for _, block in blocks_of_rows(targets)]
    return _Counts(
        np.concatenate([np.zeros(0, np.int64), *num_carried]),
        count_images(targets),
        count_images(targets, UNKNOWN),
    )


def _summarise(name: str, split: Split, counted: _Counts) -> SplitSummary:
    return SplitSummary(
        name=name,
        num_images=len(split),
        num_unlabelled=int((counted.num_carried == 0).sum()),
        labels_per_image=float(counted.num_carried.mean()) if len(split) else 0.0,
        num_groups=len(named_groups(split.groups)) or None,
    )


def _summarise_labels(dataset: Dataset, counted: Sequence[_Counts]) -> tuple[LabelSummary, ...]:
    num_images = sum(len(split) for split in dataset.splits.values())
    summaries = []
    for index, label in enumerate(dataset.labels):
        found = dict(zip(dataset.splits, counted, strict=True))
        positives = {name: int(counts.positives[index]) for name, counts in found.items()}
        unknown = {name: int(counts.unknown[index]) for name, counts in found.items()}
        prevalence = sum(positives.values()) / max(num_images - sum(unknown.values()), 1)
        summaries.append(LabelSummary(label, positives, unknown, prevalence))
    return tuple(summaries)


def _strongest_pairs(labels: tuple[str, ...], numbers: PairNumbers) -> tuple[LabelPair, ...]:
    phi = numbers.correlations()
    rows, columns = np.triu_indices(len(labels), k=1)
    order = np.argsort(-np.abs(phi[rows, columns]), kind="stable")[:SHOWN_PAIRS]
    return tuple(
        LabelPair(labels[row], labels[column], int(numbers.num_both[row, column]), float(phi[row, column]))
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
