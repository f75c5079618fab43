"""What was predicted of the last images: the share of unfamiliar ones, the rate of each label, features."""

from __future__ import annotations

from collections import deque
from itertools import repeat
from typing import NamedTuple

import numpy as np

from kmcl.evaluation.drift import PredictedImages
from kmcl.evaluation.ranking import Values
from kmcl.evaluation.unfamiliarity import is_unfamiliar

WINDOW_IMAGES = 1000


class _Image(NamedTuple):
    probabilities: Values
    present: np.typing.NDArray[np.bool_]
    unfamiliarity: float | None
    is_unfamiliar: bool
    features: Values | None


class PredictionWindow:
    """The last `num_images` images; older ones are forgotten one by one.

    Not for several threads at once: the service counts on the thread of its event loop.

    num_seen: images that were ever added
    """

    def __init__(self, num_labels: int, num_images: int = WINDOW_IMAGES) -> None:
        if num_images < 1:
            raise ValueError(f"num_images must be at least 1; got {num_images}")
        self._size = num_images
        self._images: deque[_Image] = deque()
        self._present = np.zeros(num_labels, dtype=np.int64)
        self._num_unfamiliar = 0
        self.num_seen = 0

    def add(self, images: PredictedImages) -> None:
        """Count images as they were answered."""
        values = images.unfamiliarity
        flags = repeat(False) if values is None else is_unfamiliar(values).tolist()
        numbers = repeat(None) if values is None else values.tolist()
        # strict is not for endless iterators
        features = repeat(None) if images.features is None else images.features
        for row in zip(images.probabilities, images.present, numbers, flags, features):  # noqa: B905
            if len(self._images) == self._size:
                old = self._images.popleft()
                self._present -= old.present
                self._num_unfamiliar -= old.is_unfamiliar
            one = _Image(*row)
            self._images.append(one)
            self._present += one.present
            self._num_unfamiliar += one.is_unfamiliar
        self.num_seen += len(images.probabilities)

    @property
    def num_images(self) -> int:
        return len(self._images)

    @property
    def unfamiliar_share(self) -> float:
        """NaN before the first image."""
        return self._num_unfamiliar / self.num_images if self._images else float("nan")

    def label_rate(self, label: int) -> float:
        """The share of images in which the label is present; NaN before the first image."""
        return float(self._present[label] / self.num_images) if self._images else float("nan")

    def feature_mean(self, feature: int) -> float:
        """The mean of a number that summarises features; NaN where no image has it."""
        numbers = [one.features[feature] for one in self._images if one.features is not None]
        return float(np.mean(numbers)) if numbers else float("nan")

    def images(self) -> PredictedImages:
        """The images in the window, at least one."""
        numbers = [one.unfamiliarity for one in self._images]
        features = [one.features for one in self._images if one.features is not None]
        return PredictedImages(
            np.stack([one.probabilities for one in self._images]),
            np.stack([one.present for one in self._images]),
            None if None in numbers else np.array(numbers, dtype=np.float64),
            np.stack(features) if len(features) == len(self._images) else None,
        )
