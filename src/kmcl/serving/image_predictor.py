"""From images as users have them (paths, Pillow images, arrays) to predictions, with any model.

Nothing here needs torch: an exported model predicts without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import islice, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from kmcl.data.dataset import StoredImage
from kmcl.data.files import decode_image
from kmcl.data.vectors import float_rows, take_vectors
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, rounded
from kmcl.serving.label_context import LabelContext
from kmcl.serving.predictions import (
    ImageLike,
    ImagePrediction,
    LabelPrediction,
    NamedImage,
    Pixels,
    PredictionList,
    Samples,
    Vectors,
)


class BatchScores(NamedTuple):
    """Scores of B images and L labels, B x L each; see `LabelPrediction`.

    unfamiliarity: B numbers; None for a model without that part
    feature_summary: B x K numbers about the images' features; None for a model without them
    """

    score: npt.NDArray[np.float32]
    probability: npt.NDArray[np.floating]
    sigma: npt.NDArray[np.float32] | None
    unfamiliarity: npt.NDArray[np.float32] | None = None
    feature_summary: npt.NDArray[np.float32] | None = None


class ImagePredictor(ABC):
    """A model that takes square images of one size, with the rules of its labels.

    feature_dim: where it takes feature vectors of so many numbers in the place of images
    """

    def __init__(self, rules: LabelRules, image_size: int, feature_dim: int | None = None) -> None:
        self._rules = rules
        self._context = LabelContext.of(rules)
        self._image_size = image_size
        self.feature_dim = feature_dim

    @property
    def rules(self) -> LabelRules:
        """The labels with their thresholds and calibration."""
        return self._rules

    @property
    def labels(self) -> tuple[str, ...]:
        return self._rules.labels

    @property
    def image_size(self) -> int:
        """Side of the square images that `score` takes; 0 where it takes feature vectors."""
        return self._image_size

    @property
    def blank_sample(self) -> Samples:
        """A grey image, or a feature vector of zeros, as a batch of one."""
        if self.feature_dim is not None:
            return np.zeros((1, self.feature_dim), dtype=np.float32)
        return np.full((1, self.image_size, self.image_size, 3), 128, dtype=np.uint8)

    def refuse_vectors(self, what: str) -> None:
        """Raise an InputError if the model takes feature vectors; `what` is to be done with images."""
        if self.feature_dim is not None:
            raise InputError(
                f"{what} needs images, and this model takes feature vectors of {self.feature_dim} numbers; "
                "kmcl predict RUN features:FILE scores them"
            )

    @property
    def has_unfamiliarity(self) -> bool:
        """Whether the model says how unlike the training images an image is."""
        return False

    @property
    def summary_size(self) -> int:
        """How many numbers summarise the features of an image; 0 for a model that gives none."""
        return 0

    @abstractmethod
    def score(self, images: Samples) -> BatchScores:
        """Score at least one image: B x S x S x 3 uint8 RGB at the model's size; or B x D float32 vectors."""

    @abstractmethod
    def resize(self, image: Pixels) -> Pixels:
        """Resize a height x width x 3 image to the model's square: bilinear, antialiased, not cropped."""

    def predict(self, images: ImageLike | Iterable[ImageLike], batch_size: int = 32) -> PredictionList:
        """Predict one image or several, in their order; an unreadable one has its `error` set.

        A model of feature vectors takes an array of D numbers or of N x D, or rows of a `FeatureVectors`.
        The result holds the images that are not paths, to display them; see `predict_each` for many.
        """
        if isinstance(images, np.ndarray) and images.ndim == 2 and self.feature_dim is not None:
            images = list(images)
        elif isinstance(images, str | Path | Image.Image | np.ndarray | NamedImage):
            images = [images]
        return PredictionList(self.predict_each(images, batch_size))

    def predict_each(self, images: Iterable[ImageLike], batch_size: int = 32) -> Iterator[ImagePrediction]:
        """Like `predict`, but yield image by image as batches are done: for images that exceed memory."""
        if batch_size < 1:
            raise InputError(f"batch_size must be at least 1, got {batch_size}")
        remaining, first = iter(images), 0
        while batch := list(islice(remaining, batch_size)):
            yield from self.predict_batch(batch, first=first)
            first += len(batch)

    def predict_batch(
        self,
        batch: Sequence[ImageLike],
        turn: AbstractContextManager[object] | None = None,
        *,
        first: int = 0,
    ) -> list[ImagePrediction]:
        """Predict images together.

        turn:  entered while the model computes, not while images are decoded
        first: position of the first image, for the names of those that have none
        """
        pixels: list[Samples] = []
        names = []
        errors: list[str | None] = []
        for position, image in enumerate(batch, first):
            names.append(_name(image, position))
            try:
                pixels.append(self._read(image, names[-1]))
                errors.append(None)
            except InputError as error:
                errors.append(str(error))
        with turn or nullcontext():
            scored = iter(self._score_and_describe(pixels) if pixels else ())
        predictions = []
        for image, name, failure in zip(batch, names, errors, strict=True):
            labels, unfamiliarity, summary = ((), None, None) if failure is not None else next(scored)
            predictions.append(
                ImagePrediction(
                    name,
                    labels,
                    failure,
                    source=image,
                    unfamiliarity=unfamiliarity,
                    feature_summary=None if summary is None else tuple(summary),
                )
            )
        return predictions

    def _score_and_describe(
        self, pixels: Sequence[Samples]
    ) -> Iterator[tuple[tuple[LabelPrediction, ...], float | None, list[float] | None]]:
        """The labels, the unfamiliarity and the summary of the features of each image."""
        stacked: Samples = np.stack(pixels)  # type: ignore[assignment]  # all are images, or all vectors
        scores = self.score(stacked)
        of_images = (
            repeat(None, len(pixels)) if array is None else rounded(array).tolist()
            for array in (scores.unfamiliarity, scores.feature_summary)
        )
        return zip(self._describe(scores), *of_images, strict=True)

    def _describe(self, scores: BatchScores) -> list[tuple[LabelPrediction, ...]]:
        shown = self._context.shown(scores)
        return [
            tuple(
                LabelPrediction(
                    label=label,
                    probability=float(shown.probability[row, k]),
                    low=None if shown.low is None else float(shown.low[row, k]),
                    high=None if shown.high is None else float(shown.high[row, k]),
                    threshold=float(shown.thresholds[k]),
                    present=bool(shown.present[row, k]),
                    score=float(shown.score[row, k]),
                    sigma=None if shown.sigma is None else float(shown.sigma[row, k]),
                )
                for k, label in enumerate(self.labels)
            )
            for row in range(len(scores.score))
        ]

    def _read(self, image: ImageLike, name: str) -> Samples:
        if self.feature_dim is not None:
            return read_vector(image, name, self.feature_dim)
        if isinstance(image, str | Path):
            pixels = decode_image(Path(image), min_side=self.image_size)
        elif isinstance(image, Image.Image):
            pixels = np.array(image.convert("RGB"))
        elif not isinstance(image, np.ndarray):
            pixels = image.load(self.image_size)
        else:
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
                raise InputError(
                    f"{name}: an array must be height x width x 3 uint8; got {image.shape} {image.dtype}"
                )
            pixels = image  # type: ignore[assignment]
        return self.resize(pixels)


def read_vector(image: ImageLike, name: str, feature_dim: int) -> Vectors:
    """A feature vector as D float32; an InputError for what is none, or has another length."""
    if isinstance(image, StoredImage):
        vector: Vectors = take_vectors(image.store, np.array([image.index]))[0]
    elif isinstance(image, np.ndarray) and image.ndim == 1:
        vector = float_rows(image[None], name)[0]
    else:
        raise InputError(f"{name}: the model takes feature vectors of {feature_dim} numbers, not images")
    if len(vector) != feature_dim:
        raise InputError(f"{name}: has {len(vector)} numbers; the model takes {feature_dim}")
    return vector


def _name(image: ImageLike, position: int) -> str:
    if isinstance(image, str | Path):
        return str(image)
    if isinstance(image, np.ndarray) and image.ndim == 1:
        return f"row {position}"
    return f"image {position}" if isinstance(image, Image.Image | np.ndarray) else image.name
