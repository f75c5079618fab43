"""Labels that a trained model got from a few examples: Gaussian processes on the images that one of its
post-hoc parts remembers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.shapes import Float

SOURCES = ("frozen_gp", "kernel_vote")
"""Parts that remember the training images, the better ones for a new label first: features from before
training know more than the labels that were trained.
"""


@runtime_checkable
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

    source:       name of the part that remembers the training images
    num_labels:   K, added labels, the last ones of the model
    num_examples: E, images that were given for them
    """

    source: str
    num_labels: int
    num_examples: int


class AddedLabels(nn.Module):
    """The logits of K added labels.

    With u the unit vectors of a part that remembers M training images, of which there are E more for the
    examples, and ρ the Bhattacharyya coefficients (Eq. 1) of kernels with these means and one variance σ²,

        f_k(n) = Σ_m α_mk ρ(n, m),    ρ(n, m) = exp((u_n · u_m - 1) / 4σ²)           m = 1 ... M + E

    `kmcl.posthoc.label_examples` solves for α. Examples are stored as float16, as the part's images are.

    memory: the part that remembers the training images
    """

    examples: Tensor
    coefficients: Tensor
    variance: Tensor

    def __init__(self, sizes: AddedSizes, memory: nn.Module) -> None:
        super().__init__()
        self.source = sizes.source
        num_images, width = cast("ImageMemory", memory).directions.shape
        self.register_buffer("examples", torch.zeros(sizes.num_examples, width, dtype=torch.float16))
        self.register_buffer("coefficients", torch.zeros(num_images + sizes.num_examples, sizes.num_labels))
        self.register_buffer("variance", torch.ones(()))

    @property
    def sizes(self) -> AddedSizes:
        return AddedSizes(self.source, self.coefficients.shape[1], len(self.examples))

    @property
    def num_labels(self) -> int:
        return self.coefficients.shape[1]

    @property
    def sigma(self) -> Float[Tensor, " K"]:
        """σ of the kernels of the added labels: the same for all images."""
        return self.variance.sqrt().expand(self.num_labels)

    @without_autocast
    def forward(
        self, directions: Float[Tensor, "B D"], remembered: Float[Tensor, "M D"]
    ) -> Float[Tensor, "B K"]:
        directions = at_least_float32(directions)
        known = torch.cat([remembered, self.examples]).to(directions.dtype)
        return torch.exp((directions @ known.T - 1) / (4 * self.variance)) @ self.coefficients
