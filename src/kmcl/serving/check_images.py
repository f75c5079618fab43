"""Real images to check an exported model on: the run's own, or scenes of the embedded digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmcl.data import Split, open_dataset
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.serving.image_predictor import BatchScores, ImagePredictor, Pixels
from kmcl.training.run_folder import RunFolder


@dataclass(frozen=True)
class CheckImages:
    """source: what they are, for messages.

    targets: N x L of the model's own labels, and `ignored` with them, as in `Split`; None where unknown
    """

    source: str
    images: Pixels
    targets: npt.NDArray[np.int8] | None = None
    ignored: npt.NDArray[np.bool_] | None = None

    def mean_average_precision(self, scores: BatchScores, labels: tuple[str, ...]) -> float | None:
        """mAP of a model's scores on these images; None where their targets are unknown."""
        if self.targets is None:
            return None
        names = tuple(f"image {row}" for row in range(len(self.images)))
        predictions = Predictions(labels, names, np.asarray(scores.score), self.targets, self.ignored)
        value = mean_average_precision(predictions)
        return None if np.isnan(value) else value


def find_check_images(folder: Path, predictor: ImagePredictor, limit: int) -> CheckImages:
    """At most `limit` images of the run's test split (val where there is none), if it is a run and its
    data are still there; else of the embedded digits."""
    split, source = _split_of_run(folder, predictor.labels)
    if split is None:
        digits = open_dataset("digits", size=max(10, 3 * limit)).splits["test"]
        return CheckImages("scenes of the embedded digits", _load(digits, predictor, range(limit))[0])
    images, kept = _load(split, predictor, range(min(limit, len(split))))
    ignored = None if split.ignored is None else split.ignored[kept]
    return CheckImages(source, images, split.targets[kept], ignored)


def _split_of_run(folder: Path, labels: tuple[str, ...]) -> tuple[Split | None, str]:
    run = RunFolder(folder)
    if not run.settings_file.is_file():
        return None, ""
    try:
        settings = run.read_settings()
        dataset = open_dataset(settings.data, **settings.data_options)
    except InputError:
        return None, ""  # the data did not come along with the run
    for name in ("test", "val"):
        split = dataset.splits.get(name)
        if split is not None and len(split) > 1 and dataset.labels == labels:
            return split, f"{name} images of {settings.data}"
    return None, ""


def _load(split: Split, predictor: ImagePredictor, indices: range) -> tuple[Pixels, list[int]]:
    """Images at the model's size, with their positions; unreadable ones are left out."""
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
