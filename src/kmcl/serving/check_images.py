"""Images to check an exported model on: those of the run, or scenes of the embedded digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kmcl.data import Split, open_dataset
from kmcl.data.selection import select, with_unknown_labels
from kmcl.data.vectors import feature_dim_of, take_vectors
from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import compare_map
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.runs.folder import RunFolder
from kmcl.serving.image_predictor import BatchScores, ImagePredictor
from kmcl.serving.predictions import Samples, Vectors

LARGEST_DIGITS_CHECK = 500
"""Without targets of the model's labels there is no mAP to measure, so more scenes would not help."""


@dataclass(frozen=True)
class CheckImages:
    """source: a description for messages.

    split: the images' own, with targets of the model's labels; None where these are unknown
    """

    source: str
    images: Samples
    split: Split | None = None

    def predictions(self, scores: BatchScores, labels: tuple[str, ...]) -> Predictions | None:
        """A model's scores on these images with their targets; None where these are unknown."""
        if self.split is None:
            return None
        return Predictions.of_split(labels, self.split, np.asarray(scores.score))

    def compare(
        self, original: BatchScores, exported: BatchScores, labels: tuple[str, ...]
    ) -> MapCost | None:
        """mAP of both with a paired interval of the difference; None without targets or without positives."""
        first, second = self.predictions(original, labels), self.predictions(exported, labels)
        if first is None or second is None or np.isnan(mean_average_precision(first)):
            return None
        cost = compare_map(first, second, np.random.default_rng(0))
        return MapCost(
            cost.first.estimate,
            cost.second.estimate,
            cost.difference.estimate,
            cost.difference.low,
            cost.difference.high,
        )


@dataclass(frozen=True)
class MapCost:
    """mAP of the model and of its exported file, and the first minus the second with its 95 % interval."""

    original: float
    exported: float
    cost: float
    low: float
    high: float


def find_check_images(folder: Path, predictor: ImagePredictor, limit: int) -> CheckImages:
    """At most `limit` images of the run's test split (val where there is none), if `folder` is a run whose
    data are available; else of the embedded digits."""
    split, source = _split_of_run(folder, predictor.labels)
    if split is None and predictor.feature_dim is not None:
        return CheckImages("vectors drawn at random", random_vectors(predictor.feature_dim, limit))
    if split is None:
        limit = min(limit, LARGEST_DIGITS_CHECK)
        digits = open_dataset("digits", size=max(10, 3 * limit)).splits["test"]
        return CheckImages("scenes of the embedded digits", _load(digits, predictor, range(limit))[0])
    images, kept = _load(split, predictor, range(min(limit, len(split))))
    return CheckImages(source, images, select(split, np.array(kept)))


def _split_of_run(folder: Path, labels: tuple[str, ...]) -> tuple[Split | None, str]:
    run = RunFolder(folder)
    if not run.is_begun:
        return None, ""
    try:
        settings = run.read_settings()
        dataset = open_dataset(settings.data.spec, **settings.data.options)
    except InputError:
        return None, ""  # the data are not on this machine
    for name in ("test", "val"):
        split = dataset.splits.get(name)
        if split is not None and len(split) > 1 and dataset.labels == labels[: dataset.num_labels]:
            added = len(labels) - dataset.num_labels  # of these the data know nothing
            noun = "images" if feature_dim_of(split.images) is None else "rows"
            return with_unknown_labels(split, added), f"{name} {noun} of {settings.data.spec}"
    return None, ""


def random_vectors(feature_dim: int, count: int) -> Vectors:
    """Always the same normal deviates."""
    return np.random.default_rng(0).standard_normal((count, feature_dim), dtype=np.float32)


def _load(split: Split, predictor: ImagePredictor, indices: range) -> tuple[Samples, list[int]]:
    """Images at the model's size, with their positions; unreadable ones are left out."""
    if predictor.feature_dim is not None:
        return take_vectors(split.images, np.array(indices)), list(indices)
    images, kept = [], []
    for index in indices:
        try:
            images.append(predictor.resize(split.images.load(index, min_side=predictor.image_size)))
            kept.append(index)
        except InputError:
            continue
    if not images:
        raise InputError("none of the run's images can be read; is its dataset still in place?")
    return np.stack(images), kept
