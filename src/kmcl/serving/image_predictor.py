"""From images as people have them (paths, Pillow images, arrays) to predictions, whatever gives the scores.

Nothing here needs torch: an exported model predicts without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from kmcl.data.files import decode_image
from kmcl.errors import InputError

Pixels = npt.NDArray[np.uint8]
ImageLike = str | Path | Image.Image | Pixels


@dataclass(frozen=True)
class LabelPrediction:
    """What the model says of one label in one image.

    score:       as the head gives it, and as metrics measure it
    probability: calibrated on val, where the model has been calibrated; else the score
    threshold:   the score from which the label counts as present
    sigma:       standard deviation of the label's kernel; None for a model without kernels
    """

    label: str
    score: float
    probability: float
    threshold: float
    present: bool
    sigma: float | None


@dataclass(frozen=True)
class ImagePrediction:
    """One image: its labels in the model's order, or why it could not be read."""

    name: str
    labels: tuple[LabelPrediction, ...]
    error: str | None = None

    @property
    def present(self) -> list[LabelPrediction]:
        """The labels the image has, the most probable first."""
        return sorted((label for label in self.labels if label.present), key=lambda label: -label.probability)


class BatchScores(NamedTuple):
    """Scores of B images and L labels, B x L each; see `LabelPrediction`."""

    score: npt.NDArray[np.float32]
    probability: npt.NDArray[np.floating]
    sigma: npt.NDArray[np.float32] | None


class ImagePredictor(ABC):
    """A model that takes square images of one size, with its labels and their thresholds."""

    def __init__(self, labels: tuple[str, ...], thresholds: Sequence[float] | None, image_size: int) -> None:
        self._labels = labels
        self._thresholds = np.array(thresholds if thresholds is not None else (0.5,) * len(labels))
        self._image_size = image_size

    @property
    def labels(self) -> tuple[str, ...]:
        return self._labels

    @property
    def image_size(self) -> int:
        """Side of the square images that `score` takes."""
        return self._image_size

    @abstractmethod
    def score(self, images: Pixels) -> BatchScores:
        """Score B x S x S x 3 RGB images of the model's own size, at least one."""

    @abstractmethod
    def resize(self, image: Pixels) -> Pixels:
        """A height x width x 3 image at the model's size: bilinear, antialiased, whatever its proportions."""

    def predict(self, images: ImageLike | Iterable[ImageLike], batch_size: int = 32) -> list[ImagePrediction]:
        """Predict one image or several, in their order; an unreadable one has its `error` set."""
        if isinstance(images, str | Path | Image.Image | np.ndarray):
            images = [images]
        return list(self.predict_each(images, batch_size))

    def predict_each(self, images: Iterable[ImageLike], batch_size: int = 32) -> Iterator[ImagePrediction]:
        """Like `predict`, one at a time as batches are done: for more images than memory holds."""
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        remaining = enumerate(images)
        while batch := list(islice(remaining, batch_size)):
            yield from self._predict_batch(batch)

    def _predict_batch(self, batch: Sequence[tuple[int, ImageLike]]) -> Iterator[ImagePrediction]:
        pixels, names = [], []
        errors: list[str | None] = []
        for position, image in batch:
            names.append(str(image) if isinstance(image, str | Path) else f"image {position}")
            try:
                pixels.append(self._read(image, names[-1]))
                errors.append(None)
            except InputError as error:
                errors.append(str(error))
        scored = iter(self._describe(self.score(np.stack(pixels))) if pixels else ())
        for name, failure in zip(names, errors, strict=True):
            labels = () if failure is not None else next(scored)
            yield ImagePrediction(name, labels, failure)

    def _describe(self, scores: BatchScores) -> list[tuple[LabelPrediction, ...]]:
        return [
            tuple(
                LabelPrediction(
                    label=label,
                    score=float(scores.score[row, k]),
                    probability=float(scores.probability[row, k]),
                    threshold=float(self._thresholds[k]),
                    present=bool(scores.score[row, k] >= self._thresholds[k]),
                    sigma=None if scores.sigma is None else float(scores.sigma[row, k]),
                )
                for k, label in enumerate(self.labels)
            )
            for row in range(len(scores.score))
        ]

    def _read(self, image: ImageLike, name: str) -> Pixels:
        if isinstance(image, str | Path):
            pixels = decode_image(Path(image), min_side=self.image_size)
        elif isinstance(image, Image.Image):
            pixels = np.array(image.convert("RGB"))
        else:
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
                raise InputError(
                    f"{name}: an array must be height x width x 3 uint8; got {image.shape} {image.dtype}"
                )
            pixels = image
        return self.resize(pixels)
