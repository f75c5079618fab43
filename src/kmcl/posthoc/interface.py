"""The interface of post-hoc parts: fitted after training, for any classifier, they correct its logits, or say
how unlike the training images an image is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kmcl.encoders import EncoderFeatures
from kmcl.methods.output import HeadOutput
from kmcl.options.posthoc import PosthocOptions
from kmcl.shapes import Float, Num

CHANCE = 0.005
"""Of the score on val: a smaller difference does not show that a part helps, or does harm."""


class PosthocPart(nn.Module, ABC):
    """A correction that is added to a classifier's logits, or a number for each image, or both.

    It is built from the encoder before training, as `Part(encoder, num_labels, **options.arguments)`; after
    training it observes the training images (`observe`), is fitted on them (`fit`) and weighted on val
    (`tune`). `sizes` are the keyword arguments with which an empty part of the same shape is built, to load
    its weights into.
    """

    Options: ClassVar[type[PosthocOptions]]
    reads_frozen_stages: ClassVar[bool] = False
    """Whether it reads them where there are any."""
    corrects_logits: ClassVar[bool] = True
    """Whether `forward` gives something to add to the logits."""
    gives_unfamiliarity: ClassVar[bool] = False
    """Whether `unfamiliarity` gives a number per image."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "needs_frozen_stages" in vars(cls):  # of parts for an earlier version
            raise TypeError(f"{cls.__name__}: needs_frozen_stages is an attribute of its Options")

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]: ...

    @abstractmethod
    def observe(self, encoded: EncoderFeatures, output: HeadOutput) -> Float[Tensor, "B S"]:
        """The observations of a batch, one row per image."""

    @torch.no_grad()
    def fit(
        self,
        observations: Float[Tensor, "N S"],
        targets: Num[Tensor, "N L"],
        options: PosthocOptions,
        seed: int,
    ) -> None:
        """Fit to the training images, or to `options.max_images` of them; targets 1, 0, or -1 for unknown."""
        rows = torch.from_numpy(draw_rows(len(observations), options.max_images, seed))
        device = next(self.buffers()).device
        self.fit_images(observations[rows].to(device), targets[rows].to(device))

    @abstractmethod
    def fit_images(self, observations: Float[Tensor, "M S"], targets: Num[Tensor, "M L"]) -> None:
        """Fit to all of these images."""

    @abstractmethod
    def tune(
        self,
        observations: Float[Tensor, "N S"],
        logits: Float[Tensor, "N L"],
        score: Callable[[Tensor], float],
    ) -> Float[Tensor, "N L"]:
        """Choose its weight by the `score` of val's corrected logits; returns these logits."""

    def forward(self, observations: Float[Tensor, "B S"]) -> Float[Tensor, "B L"]:
        """What is added to the logits."""
        raise NotImplementedError(f"{type(self).__name__} corrects no logits")

    def unfamiliarity(
        self, observations: Float[Tensor, "B S"], logits: Float[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """How unlike the training images each image is, from 0 to 1.

        logits: with the corrections of the parts before it
        """
        raise NotImplementedError(f"{type(self).__name__} only corrects logits")

    @property
    def summary_size(self) -> int:
        """How many numbers `feature_summary` gives; 0 for a part without it."""
        return 0

    def feature_summary(self, observations: Float[Tensor, "B S"]) -> Float[Tensor, "B K"]:
        """A few numbers about the features of each image, by whose means a drift of the images is noticed."""
        raise NotImplementedError(f"{type(self).__name__} does not summarise features")

    @classmethod
    def uses_taps(cls, num_frozen_stages: int) -> bool:
        """Whether an encoder with so many frozen stages must give their taps to the part."""
        return cls.Options.needs_frozen_stages or (cls.reads_frozen_stages and num_frozen_stages > 0)

    @property
    def is_worth_keeping(self) -> bool:
        """Whether the model is saved with it, once it is tuned."""
        return True


def draw_rows(num_images: int, most: int, seed: int) -> npt.NDArray[np.int64]:
    """Which training images are used: all, or `most` at random if there are more."""
    rows = np.arange(num_images)
    if num_images > most:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:most])
    return rows
