"""Labels that a trained model got from a few examples: linear discriminants on the vectors by which one of
its post-hoc parts compares images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.shapes import Float

SOURCES = ("frozen_gp", "kernel_vote")
"""Parts that remember the training images, the better ones for a new label first: features from before
training know more than the labels that were trained.
"""


class ImageMemory(Protocol):
    """A part that holds a unit vector for each of M training images."""

    directions: Tensor

    def directions_of(self, observations: Float[Tensor, "B S"]) -> Float[Tensor, "B D"]:
        """The unit vectors of other images."""
        ...


def find_memory(parts: Mapping[str, nn.Module]) -> str | None:
    """The name of the part to add labels with; None where no part remembers images."""
    return next((name for name in SOURCES if name in parts), None)


@dataclass(frozen=True)
class AddedSizes:
    """What an empty `AddedLabels` is built from.

    source:     name of the part that remembers the training images
    num_labels: K, added labels, the last ones of the model
    """

    source: str
    num_labels: int


class AddedLabels(nn.Module):
    """The logits of K added labels, w_k · u + b_k, with u the unit vector of a part that remembers images.

    `kmcl.posthoc.label_examples` fits w up to a factor, `kmcl.evaluation.unlabelled` this factor and b: they
    are calibrated already.

    memory: the part that remembers the training images
    sigma:  K, standard deviations of the covariance that the images with a label and the others share
    """

    weights: Tensor
    biases: Tensor
    sigma: Tensor

    def __init__(self, sizes: AddedSizes, memory: nn.Module) -> None:
        super().__init__()
        self.source = sizes.source
        width = cast("ImageMemory", memory).directions.shape[1]
        self.register_buffer("weights", torch.zeros(width, sizes.num_labels))
        self.register_buffer("biases", torch.zeros(sizes.num_labels))
        self.register_buffer("sigma", torch.ones(sizes.num_labels))

    @property
    def sizes(self) -> AddedSizes:
        return AddedSizes(self.source, self.weights.shape[1])

    @without_autocast
    def forward(self, directions: Float[Tensor, "B D"]) -> Float[Tensor, "B K"]:
        return at_least_float32(directions) @ self.weights + self.biases
