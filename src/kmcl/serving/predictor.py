"""A trained model that takes images as people have them: paths, Pillow images or arrays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from kmcl.data.augmentation import resize
from kmcl.data.files import decode_image
from kmcl.errors import InputError
from kmcl.methods.model_folder import DESCRIPTION_FILE, ModelDescription, load_model
from kmcl.models.classifier import Classifier

ImageLike = str | Path | Image.Image | npt.NDArray[np.uint8]


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


class Predictor:
    """A classifier with its labels, preprocessing, thresholds and calibration."""

    def __init__(self, classifier: Classifier, description: ModelDescription) -> None:
        self.classifier = classifier.eval()
        self.description = description
        num_labels = len(description.labels)
        self._thresholds = np.array(description.thresholds or (0.5,) * num_labels)
        self._temperatures = np.array(description.temperatures or (1.0,) * num_labels)
        self._biases = np.array(description.biases or (0.0,) * num_labels)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.description.labels

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
        scored = iter(self._score(pixels))
        for name, failure in zip(names, errors, strict=True):
            labels = () if failure is not None else next(scored)
            yield ImagePrediction(name, labels, failure)

    @torch.inference_mode()
    def _score(self, pixels: list[npt.NDArray[np.uint8]]) -> list[tuple[LabelPrediction, ...]]:
        if not pixels:
            return []
        images = torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        output = self.classifier(images.to(next(self.classifier.parameters()).device))
        logits = output.logits.float().cpu().numpy().astype(np.float64)
        scores = output.probabilities.float().cpu().numpy()
        probabilities = 1 / (1 + np.exp(-(logits / self._temperatures + self._biases)))
        sigmas = None if output.sigma is None else output.sigma.float().cpu().numpy()
        return [
            tuple(
                LabelPrediction(
                    label=label,
                    score=float(scores[row, k]),
                    probability=float(probabilities[row, k]),
                    threshold=float(self._thresholds[k]),
                    present=bool(scores[row, k] >= self._thresholds[k]),
                    sigma=None if sigmas is None else float(sigmas[row, k]),
                )
                for k, label in enumerate(self.labels)
            )
            for row in range(len(pixels))
        ]

    def _read(self, image: ImageLike, name: str) -> npt.NDArray[np.uint8]:
        size = self.classifier.encoder.input_size
        if isinstance(image, str | Path):
            pixels = decode_image(Path(image), min_side=size)
        elif isinstance(image, Image.Image):
            pixels = np.array(image.convert("RGB"))
        else:
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
                raise InputError(
                    f"{name}: an array must be height x width x 3 uint8; got {image.shape} {image.dtype}"
                )
            pixels = image
        return resize(pixels, size, size)


def load(path: str | Path) -> Predictor:
    """Load a trained model: a run folder, or the `model` folder inside it."""
    folder = Path(path)
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder")
    if not (folder / DESCRIPTION_FILE).is_file() and (folder / "model").is_dir():
        folder = folder / "model"
    return Predictor(*load_model(folder))
