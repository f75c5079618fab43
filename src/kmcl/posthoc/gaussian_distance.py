"""The Mahalanobis distance to a Gaussian that is fitted to vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.shapes import Float

MOST_DIRECTIONS = 256
SHRINKAGE = 1e-3
"""Added to every variance, as a share of their mean: directions in which the vectors hardly differ would
decide alone.
"""
LEAST_DEVIATION = 1e-6
"""A number that varies less than this is treated as constant."""


class GaussianDistance(nn.Module):
    """The logarithm of the squared Mahalanobis distance to a fitted Gaussian.

    With z the vector, each number of it standardised, v_j the main directions and λ_j their variances,

        D = Σ_j (v_j · z)² / (λ_j + ε) + (‖z‖² - Σ_j (v_j · z)²) / (λ + ε)

    where λ is the mean variance of the directions beyond the first `MOST_DIRECTIONS`, which have no term of
    their own. The covariance is shrunk by ε.

    width: of the vectors
    """

    centre: Tensor
    scale: Tensor
    directions: Tensor
    precisions: Tensor
    rest_precision: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        num_directions = min(width, MOST_DIRECTIONS)
        self.register_buffer("centre", torch.zeros(width))
        self.register_buffer("scale", torch.zeros(width))
        self.register_buffer("directions", torch.zeros(width, num_directions))
        self.register_buffer("precisions", torch.zeros(num_directions))
        self.register_buffer("rest_precision", torch.zeros(()))

    @torch.no_grad()
    def fit(self, vectors: Float[Tensor, "M S"]) -> None:
        """The mean and the shrunk covariance of these vectors."""
        exact = vectors.double()
        deviations, centre = torch.std_mean(exact, dim=0, correction=0)
        scale = torch.where(deviations > LEAST_DEVIATION, 1 / deviations, 0.0)
        standardised = (exact - centre) * scale
        variances, directions = torch.linalg.eigh(standardised.T @ standardised / len(vectors))
        variances, directions = variances.flip(0).clamp(min=0), directions.flip(1)
        shrinkage = SHRINKAGE * variances.mean().clamp(min=LEAST_DEVIATION)
        kept = self.directions.shape[1]
        self.centre, self.scale = centre.to(self.centre), scale.to(self.scale)
        self.directions = directions[:, :kept].to(self.directions).contiguous()
        self.precisions = (1 / (variances[:kept] + shrinkage)).to(self.precisions)
        rest = variances[kept:].mean() if len(variances) > kept else variances[-1]
        self.rest_precision = (1 / (rest + shrinkage)).to(self.rest_precision)

    @without_autocast
    def places(self, vectors: Float[Tensor, "B S"], number: int) -> Float[Tensor, "B K"]:
        """Where vectors lie along the first main directions, in the deviations of the fitted ones."""
        directions = self.scale[:, None] * self.directions[:, :number] * self.precisions[:number].sqrt()
        return (at_least_float32(vectors) - self.centre) @ directions

    @without_autocast
    def forward(self, vectors: Float[Tensor, "B S"]) -> Float[Tensor, " B"]:
        differences = at_least_float32(vectors) - self.centre
        directions = self.scale[:, None] * self.directions  # constants, which an exported file has once
        if self.directions.shape[1] == len(self.centre):
            whitened = differences @ (directions * self.precisions.sqrt())
            return torch.log(whitened.square().sum(dim=1) + LEAST_DEVIATION)
        squares = (differences @ directions).square()
        rest = ((differences * self.scale).square().sum(dim=1) - squares.sum(dim=1)).clamp(min=0)
        return torch.log(squares @ self.precisions + rest * self.rest_precision + LEAST_DEVIATION)
