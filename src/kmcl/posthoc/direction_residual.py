"""How much of a vector lies outside the main directions of others."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.shapes import Float

MOST_DIRECTIONS = 128
LARGEST_SHARE = 4
"""At most a quarter of all directions are main ones, so that there is an outside."""


class DirectionResidual(nn.Module):
    """The share of a vector's squared length, seen from the mean of the fitted ones, outside main directions.

    With u the unit vector from the mean to the vector and v_j the main directions of the fitted u,

        r = 1 - Σ_j (v_j · u)²

    between 0 and 1. How far from the mean the vector lies does not count: features of images that show much
    lie far from it.

    width: of the vectors
    """

    centre: Tensor
    directions: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        num_directions = max(1, min(MOST_DIRECTIONS, width // LARGEST_SHARE))
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("directions", torch.zeros(width, num_directions))

    @torch.no_grad()
    def fit(self, vectors: Float[Tensor, "M S"]) -> None:
        """The mean of these vectors, and the main directions in which they lie from it."""
        self.centre = vectors.mean(dim=0)
        units = self._units(vectors).double()
        _, directions = torch.linalg.eigh(units.T @ units)
        main = directions.flip(1)[:, : self.directions.shape[1]]
        self.directions = main.to(self.directions).contiguous()

    @without_autocast
    def places(self, vectors: Float[Tensor, "B S"], number: int) -> Float[Tensor, "B K"]:
        """v_j · u for the first main directions, between -1 and 1."""
        return self._units(at_least_float32(vectors)) @ self.directions[:, :number]

    @without_autocast
    def forward(self, vectors: Float[Tensor, "B S"]) -> Float[Tensor, " B"]:
        differences = at_least_float32(vectors) - self.centre
        inside = (differences @ self.directions).square().sum(dim=1)
        return 1 - inside / differences.square().sum(dim=1).clamp(min=torch.finfo(inside.dtype).tiny)

    def _units(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors - self.centre, dim=1)
