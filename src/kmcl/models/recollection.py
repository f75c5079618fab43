"""A Gaussian process over the training images as the encoder saw them before it was trained."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from kmcl.data.targets import read_targets
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.models.encoder import Encoder
from kmcl.models.frozen_stages import FirstStages, statistics_of
from kmcl.shapes import Float, Num

VARIANCE = 0.2
NOISE = 2.0
MOST_DIRECTIONS = 512
LEAST_DEVIATION = 1e-6
"""A statistic that differs less than this among the images remembered says nothing."""


class Recollection(nn.Module):
    """Kernels of images whose labels are known, where training has bent nothing, and what they say of others.

    An image is seen as the mean and deviation of each channel of its maps: of the encoder's first stages,
    which training left as they were, and of its last map, for which the later stages are kept here as they
    were. Standardised, with equal shares for all maps, projected on their main directions and made a unit
    vector u, that is the mean of the image's kernel; a variance σ² is shared by all. The Bhattacharyya
    coefficients (Eq. 1) of such kernels,

        ρ(n, m) = exp(-‖u_n - u_m‖² / 8σ²) = exp((u_n · u_m - 1) / 4σ²)

    are a covariance function. So labels seen on M images with noise ν make a Gaussian process, whose mean is
    the evidence:

        evidence_k(n) = λ Σ_m ρ(n, m) α_mk / s_k            where (ρ + ν I) α_k = y_k - p_k

    with p_k the frequency of label k and s_k = √(p_k (1 - p_k)). Where a label is unknown, y_k is p_k.
    Directions are kept as float16. A new one has λ = 0.
    """

    centre: Tensor
    projection: Tensor
    directions: Tensor
    coefficients: Tensor
    weight: Tensor

    def __init__(self, encoder: Encoder, num_labels: int, num_images: int = 0) -> None:
        """`encoder` as it was before training; it hands on its first stages."""
        super().__init__()
        self.later_stages = copy.deepcopy(encoder.rest()).requires_grad_(False).eval()
        self.widths = (*encoder.statistic_widths, 2 * encoder.spatial_dim)
        num_statistics = sum(self.widths)
        num_directions = min(MOST_DIRECTIONS, num_statistics, num_images)
        self.register_buffer("centre", torch.zeros(num_statistics))
        self.register_buffer("projection", torch.zeros(num_statistics, num_directions))
        self.register_buffer("directions", torch.zeros(num_images, num_directions, dtype=torch.float16))
        self.register_buffer("coefficients", torch.zeros(num_images, num_labels))
        self.register_buffer("weight", torch.tensor(0.0))

    @property
    def speaks(self) -> bool:
        """Whether it gives any evidence."""
        return float(self.weight) > 0

    @property
    def num_images(self) -> int:
        return len(self.directions)

    def train(self, mode: bool = True) -> Recollection:
        """It is never trained: norms always use their running statistics."""
        return super().train(False)

    @without_autocast
    def statistics(self, first: FirstStages) -> Float[Tensor, "B S"]:
        """What is seen of images of which the encoder's first stages made this."""
        maps = first.maps.to(self.projection.dtype)
        last: Tensor = self.later_stages.forward_features(maps)  # type: ignore[operator]
        return torch.cat([*first.statistics, statistics_of(last)], dim=1)

    @torch.no_grad()
    def remember(self, statistics: Float[Tensor, "M S"], targets: Num[Tensor, "M L"]) -> None:
        """Keep these images, any number of them; targets 1, 0, or -1 for unknown."""
        self.centre = statistics.mean(dim=0)
        scale = self._scale(statistics.std(dim=0, correction=0))
        num_directions = min(MOST_DIRECTIONS, *statistics.shape)
        with torch.random.fork_rng(devices=[]):  # the decomposition is randomised
            torch.manual_seed(0)
            _, _, main = torch.pca_lowrank((statistics - self.centre) * scale, num_directions, center=False)
        self.projection = scale.unsqueeze(1) * main
        self.directions = self._directions_of(statistics).half()
        annotation = read_targets(targets.to(statistics.device))
        positive, known = annotation.positive.float(), annotation.known.float()
        rates = positive.sum(dim=0) / known.sum(dim=0).clamp(min=1)
        covariance = self._similarities(self.directions.float())
        covariance.diagonal().add_(NOISE)
        coefficients = torch.cholesky_solve(positive - rates * known, torch.linalg.cholesky(covariance))
        self.coefficients = coefficients / (rates * (1 - rates)).sqrt().clamp(min=LEAST_DEVIATION)

    @torch.no_grad()
    def set_weight(self, weight: float) -> None:
        """λ."""
        if not weight >= 0:
            raise ValueError(f"weight must be at least 0; got {weight}")
        self.weight.fill_(weight)

    @without_autocast
    def forward(self, statistics: Float[Tensor, "B S"]) -> Float[Tensor, "B L"]:
        """The evidence for each label."""
        similarities = self._similarities(self._directions_of(at_least_float32(statistics)))
        return self.weight * (similarities @ self.coefficients)

    def _similarities(self, directions: Tensor) -> Tensor:
        return torch.exp((directions @ self.directions.to(directions.dtype).T - 1) / (4 * VARIANCE))

    def _directions_of(self, statistics: Tensor) -> Tensor:
        return nn.functional.normalize((statistics - self.centre) @ self.projection, dim=1)

    def _scale(self, deviations: Tensor) -> Tensor:
        shares = torch.cat([torch.full((width,), width**-0.5) for width in self.widths]).to(deviations)
        return torch.where(deviations > LEAST_DEVIATION, shares / deviations, 0.0)
