"""What a recipe knows when it chooses: facts about data and encoders, a machine, and candidates."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

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


SHARE_OF_FEATURES = 0.55
"""Of the budget, at most, for computing features; the rest is for training."""
SHARE_OF_ALL = 0.85
"""Of the budget, for features and the fewest epochs together; the rest is for the start and the end."""
EPOCH_PER_PASS = 0.55
"""Time of an epoch on cached features over that of computing them: 0.47 to 0.67 for what was measured."""
LONG_BUDGET, EPOCHS_OF_LONG = 300.0, 3.75
"""Above this budget there must be time for three epochs and the search of the rate, below it for one."""
FIXED_SECONDS, EPOCHS_AT_THE_END = 35.0, 0.6
"""What a run takes besides: its start, and after training the passes for post-hoc parts and evaluation."""
LARGEST_ENLARGEMENT, ENLARGEMENT_OF_LONG = 1.6, 1.75
"""Of the images' longer side, by default and with a budget of at least `BUDGET_TO_ENLARGE`: with less, more
epochs gain more than larger images (docs/recipes.md).
"""
BUDGET_TO_ENLARGE = 1200.0
MOST_VIEWS = 4
NOMINAL_SECONDS = 1.4e-7
"""For a unit of `Candidate.cost`, on two cores: only decides which candidate is timed first."""

LITE0, LITE2 = "tf_efficientnet_lite0", "tf_efficientnet_lite2"
_COSTS = {LITE0: 1.0, LITE2: 1.66}
"""Multiplications per pixel, of encoders that are compared with one another."""


class Candidate(NamedTuple):
    """An encoder, its image size and the number of views."""

    encoder: str
    image_size: int
    views: int

    @property
    def cost(self) -> float:
        """Multiplications for one view of an image, up to a factor."""
        return _COSTS.get(self.encoder, 1.0) * self.image_size**2


CANDIDATES = (
    Candidate(LITE0, 128, 1),
    Candidate(LITE0, 160, 1),
    Candidate(LITE0, 192, 1),
    Candidate(LITE0, 224, 1),
    Candidate(LITE2, 224, 1),
    Candidate(LITE2, 260, 1),
    Candidate(LITE2, 320, 1),
    Candidate(LITE2, 320, 2),
    Candidate(LITE2, 384, 2),
    Candidate(LITE2, 384, 3),
    Candidate(LITE2, 448, 3),
    Candidate(LITE2, 448, 4),
)
"""From the cheapest to the dearest; the last that fits the budget is taken."""
COST_EXPONENT = 1.1
"""Time grows a little faster than multiplications: larger maps leave the processor's cache."""
STUDY_CANDIDATE = Candidate(LITE0, 224, 2)
"""For comparisons and studies, whose plan must not depend on the speed of the machine."""
FINETUNE_CANDIDATE = Candidate(LITE2, 320, 1)
"""What is trained as a whole where an accelerator has the time for it."""


def relative_cost(candidate: Candidate, timed: Candidate) -> float:
    """The time that a candidate takes over that of the one that was timed."""
    return float((candidate.cost / timed.cost) ** COST_EXPONENT)


class ImageCounts(NamedTuple):
    """How many images of a dataset need features: of each view of train, and besides."""

    train: int
    other: int

    @classmethod
    def of(cls, dataset: Dataset, *, with_test: bool) -> ImageCounts:
        others = ("val", "test") if with_test else ("val",)
        other = sum(len(dataset.splits[name]) for name in others if name in dataset.splits)
        return cls(len(dataset.splits["train"]), other)

    def passes(self, views: int) -> int:
        return self.other + views * self.train


def allowed_candidates(values: Mapping[str, Any], facts: Facts, budget: float) -> list[Candidate]:
    """Those that agree with what was given, and with a budget in seconds; the cheapest first."""
    encoder, size, views = values.get("encoder"), values.get("image_size"), values.get("cached_views")
    if encoder is None:
        candidates = [c for c in CANDIDATES if facts.encoders.default_weights(c.encoder) != "none"]
    else:
        candidates = _sizes_of(encoder, facts.encoders)
    if values.get("augmentation") == "none":
        views = 1
    if views is not None:
        candidates = [c._replace(views=views) for c in candidates]
    if size is not None:
        candidates = [c._replace(image_size=size) for c in candidates]
    else:
        largest = _enlargement(facts, budget) * facts.longer_side
        small_enough = [c for c in candidates if c.image_size <= largest] or candidates[:1]
        if views is None and len(small_enough) < len(candidates):
            last = small_enough[-1]  # what larger images would cost is left for views
            small_enough += [last._replace(views=more) for more in range(last.views + 1, MOST_VIEWS + 1)]
        candidates = small_enough
    return list(dict.fromkeys(candidates))


def _enlargement(facts: Facts, budget: float) -> float:
    if facts.rule.largest_enlargement is not None:
        return facts.rule.largest_enlargement
    return ENLARGEMENT_OF_LONG if budget >= BUDGET_TO_ENLARGE else LARGEST_ENLARGEMENT


def best_that_fits(
    candidates: Sequence[Candidate],
    images: ImageCounts,
    budget: float,
    seconds_per_image: Callable[[Candidate], float],
) -> Candidate:
    """The last candidate whose features fit into their share of the budget and leave time for some epochs,
    else the first.
    """
    epochs = EPOCHS_OF_LONG if budget >= LONG_BUDGET else 1.0

    def fits(candidate: Candidate) -> bool:
        seconds = seconds_per_image(candidate)
        features = images.passes(candidate.views) * seconds
        return (
            features <= SHARE_OF_FEATURES * budget
            and features + epochs * EPOCH_PER_PASS * images.train * seconds <= SHARE_OF_ALL * budget
            and seconds_of_run(candidate, images, epochs, seconds) <= budget
        )

    fitting = [candidate for candidate in candidates if fits(candidate)]
    return fitting[-1] if fitting else candidates[0]


def seconds_of_run(
    candidate: Candidate, images: ImageCounts, epochs: float, seconds_per_image: float
) -> float:
    """Expected time of a whole run: its start, the features, so many epochs, and what comes after them."""
    features = images.passes(candidate.views) * seconds_per_image
    epoch = EPOCH_PER_PASS * images.train * seconds_per_image
    return features + (epochs + EPOCHS_AT_THE_END) * epoch + FIXED_SECONDS


def _sizes_of(encoder: str, encoders: Encoders) -> list[Candidate]:
    """An encoder of the user's choice: at its own size, smaller, and (where it can) larger."""
    size, is_fixed = encoders.own_size(encoder)
    if is_fixed:
        return [Candidate(encoder, size, views) for views in (1, 2, 3)]
    smaller = [Candidate(encoder, int(size * part) // 32 * 32, 1) for part in (0.6, 0.8)]
    larger = int(size * 1.3) // 32 * 32
    return [*smaller, Candidate(encoder, size, 1), Candidate(encoder, size, 2)] + [
        Candidate(encoder, larger, views) for views in (2, 3)
    ]
