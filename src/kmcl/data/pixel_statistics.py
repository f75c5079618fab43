"""Mean and standard deviation of the pixels that a run normalises its images with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.cores import available_cores
from kmcl.data.cache import content_key
from kmcl.data.dataset import Dataset, ImageStore, Split
from kmcl.data.decoding import decode_many
from kmcl.data.normalisation import IMAGENET_MEAN, IMAGENET_STD, parse_normalisation, values_per_channel
from kmcl.data.selection import take_subset
from kmcl.data.source_cache import cache_folder, try_to_write
from kmcl.data.vectors import feature_dim, take_vectors
from kmcl.errors import InputError

MOST_IMAGES = 2048
"""Training images whose pixels are counted; drawn from all with one seed, so that runs agree."""
LEAST_DEVIATION = 1e-6
"""Of a number's mean: one that varies less is rounding."""
SIDE = 224
"""Images are resized to squares of this side before their pixels are counted."""


class Normalisation(NamedTuple):
    """Per input channel, of pixels between 0 and 1."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


def find_normalisation(
    chosen: str, in_channels: int, dataset: Dataset, cache_dir: Path | None = None
) -> Normalisation | None:
    """The one that a setting names; None for the encoder's own. Feature vectors: of the training vectors."""
    if feature_dim(dataset) is not None:
        return vector_normalisation(dataset.splits["train"])
    if chosen == "encoder":
        return None
    if chosen == "imagenet":
        found = Normalisation(IMAGENET_MEAN, IMAGENET_STD)
    elif chosen == "dataset":
        found = dataset_normalisation(dataset.splits["train"], cache_dir)
    else:
        numbers = parse_normalisation(chosen)
        half = len(numbers) // 2
        found = Normalisation(numbers[:half] * (3 // half), numbers[half:] * (3 // half))
    return Normalisation(*(values_per_channel(values, in_channels) for values in found))


def vector_normalisation(train: Split) -> Normalisation:
    """Mean and std of each number of the training vectors; a number that never varies stays as it is."""
    blocks = np.array_split(np.arange(len(train)), -(-len(train) // MOST_IMAGES))
    mean = sum(take_vectors(train.images, rows).sum(axis=0, dtype=np.float64) for rows in blocks) / len(train)
    variance = sum(np.square(take_vectors(train.images, rows) - mean).sum(axis=0) for rows in blocks) / len(
        train
    )
    std = np.sqrt(variance)
    std = np.where(std > LEAST_DEVIATION * np.abs(mean), std, 1.0)
    return Normalisation(tuple(mean.tolist()), tuple(std.tolist()))


def dataset_normalisation(train: Split, cache_dir: Path | None = None) -> Normalisation:
    """Mean and std of the pixels of the training images, from the cache while these are unchanged.

    cache_dir: instead of `normalisation` in the user's cache folder
    """
    images = take_subset(train, min(len(train), MOST_IMAGES), seed=0).images
    path = (cache_dir or cache_folder() / "normalisation") / f"{content_key(images, SIDE)}.normalisation.json"
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return Normalisation(_three(stored["mean"]), _three(stored["std"]))
    except (OSError, ValueError, KeyError, TypeError):
        pass
    found = _measure(images)

    def write(file: Path) -> None:
        file.write_text(json.dumps(found._asdict()) + "\n", encoding="utf-8")

    try_to_write(path, write)
    return found


def _measure(images: ImageStore) -> Normalisation:
    """From counts of the 256 values of each channel: exact, whatever the number of pixels."""
    counts = np.zeros((3, 256), dtype=np.int64)
    problem = "there are none"
    for outcome in decode_many(images, range(len(images)), SIDE, available_cores()):
        if isinstance(outcome, str):
            problem = outcome  # reported, or refused, where the images are loaded for training
            continue
        counts += [np.bincount(outcome[..., channel].ravel(), minlength=256) for channel in range(3)]
    if not counts.any():
        raise InputError(f"normalisation 'dataset' needs training images that can be read: {problem}")
    values: npt.NDArray[np.float64] = np.arange(256) / 255
    shares = counts / counts.sum(axis=1, keepdims=True)
    mean = shares @ values
    std = np.sqrt((shares * (values - mean[:, None]) ** 2).sum(axis=1))
    if not (std > 0).all():
        raise InputError(
            "normalisation 'dataset' needs training images that differ; all their pixels are equal"
        )
    return Normalisation(_three(mean.tolist()), _three(std.tolist()))


def _three(values: list[float]) -> tuple[float, ...]:
    first, second, third = map(float, values)
    return first, second, third
