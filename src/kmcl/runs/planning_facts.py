"""What a recipe knows when it chooses: facts about data and encoders, and a machine that can be measured."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kmcl.data import Dataset
from kmcl.data.dataset import Split
from kmcl.data.vectors import feature_dim
from kmcl.errors import InputError

COLOUR_OF_GREY = 2.0
"""Of 255: the largest mean difference between the channels of an image that counts as grey."""
MOST_IMAGES = 16
"""Training images that are read to know their sizes and colours."""

RuntimeName = Literal["torch", "onnxruntime"]
RUNTIME_PACKAGES = ("onnxruntime", "onnx", "onnxscript")


def installed_runtime() -> RuntimeName:
    """What computes the features of frozen stages on a CPU: onnxruntime where it is installed."""
    is_installed = all(importlib.util.find_spec(name) is not None for name in RUNTIME_PACKAGES)
    return "onnxruntime" if is_installed else "torch"


class DataRule(NamedTuple):
    """What a recipe chooses otherwise for images of a kind.

    trained_stages:      how many times as many of the encoder's last stages are trained
    least_stages:        of an encoder for that: two of a few are most of it
    largest_enlargement: of the images' longer side; None for the budget's
    process:             the Gaussian process on frozen features, where more stages are trained
    """

    trained_stages: int = 1
    least_stages: int = 0
    largest_enlargement: float | None = None
    process: str | None = None


DATA_RULES = {"grey": DataRule(2, 6, 1.0, "frozen_gp:last_map=false,stages=0,grid=7")}
"""Grey images, such as X-rays and scans, are unlike the photographs that encoders were trained on. From folds
of ChestX-ray14 (docs/recipes.md, docs/research/default.md): features of 384 px were no better than of 224;
the copy of two stages for the process's last map would be a third of a prediction, and gains nothing, but the
place of a feature does: they are taken alike.
"""


class Encoders(Protocol):
    """What is known of encoders by their names."""

    def default_weights(self, name: str) -> str: ...

    def count_stages(self, name: str) -> int:
        """Raises InputError where an encoder cannot be cut into stages."""

    def own_size(self, name: str) -> tuple[int, bool]:
        """The image side it is made for, and whether it takes no other."""

    def made_for(self, weights: str | None) -> str | None:
        """The encoder that weights of a package are for."""


@dataclass(frozen=True)
class Facts:
    """About the data of a run: with the part of train that is trained on."""

    dataset: Dataset
    encoders: Encoders

    @property
    def train(self) -> Split:
        return self.dataset.splits["train"]

    @cached_property
    def are_vectors(self) -> bool:
        return feature_dim(self.dataset) is not None

    @cached_property
    def rule(self) -> DataRule:
        """What recipes choose otherwise for these data."""
        return DATA_RULES["grey"] if self.are_grey else DataRule()

    @cached_property
    def are_grey(self) -> bool:
        """Whether all of some training images have no colour, but for what compression adds."""
        some = [] if self.are_vectors else self._some_images
        return bool(some) and all(np.ptp(image, axis=2).mean() <= COLOUR_OF_GREY for image in some)

    @cached_property
    def longer_side(self) -> float:
        """The median longer side of some training images in pixels."""
        sides = [max(image.shape[:2]) for image in self._some_images]
        return float(np.median(sides)) if sides else float("inf")

    @cached_property
    def _some_images(self) -> list[npt.NDArray[np.uint8]]:
        images, found = self.train.images, []
        for row in np.linspace(0, len(images) - 1, min(MOST_IMAGES, len(images)), dtype=int):
            try:
                found.append(images.load(int(row)))
            except InputError:
                continue  # reported when the features are computed
        return found


class Throughput(Protocol):
    """Seconds that an image takes, of an encoder at a size that was timed."""

    @property
    def runtime(self) -> RuntimeName:
        """The faster one."""

    def seconds_per_image(self, cost: float = 1.0) -> float:
        """For an encoder and image size that need `cost` times the multiplications of the measured ones."""


class Machine(Protocol):
    """Measures how fast this machine is."""

    @property
    def device(self) -> str: ...

    def time_features(
        self,
        encoder: str,
        weights: str | None,
        image_size: int | None,
        frozen_stages: int,
        split: Split,
        in_channels: int,
    ) -> Throughput:
        """Of the frozen stages, with what can run them, and of reading images."""

    def time_training(
        self, encoder: str, weights: str | None, image_size: int | None, split: Split, in_channels: int
    ) -> float:
        """Seconds that one image takes when all stages are trained, loading included."""
