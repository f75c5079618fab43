"""Prediction from remembered kernels: what the training images most like this one carry."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.data.targets import read_targets
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.shapes import Float, Num

SMOOTHING = 1e-3
"""Added to both shares before their ratio is taken: what is not remembered at all has finite odds."""


class KernelMemory(nn.Module):
    """Kernels of images whose labels are known, and the evidence they give for another image's labels.

    An image's kernel has the direction u of its centred features as mean, and a variance σ² that all share.
    The Bhattacharyya coefficient (Eq. 1) of two such kernels is

        ρ(n, m) = exp(-‖u_n - u_m‖² / 8σ²) = exp((u_n · u_m - 1) / 4σ²)

    and the share of label k around image n is the mean of what the others carry, weighted by likeness:

        p_k(n) = Σ_m ρ(n, m) y_mk / Σ_m ρ(n, m)            over the images m of which k is known
        evidence_k(n) = λ [ log-odds of p_k(n) - log-odds of k among all that are remembered ]

    Directions are kept as float16. A new memory has λ = 0 and gives no evidence.
    """

    def __init__(self, num_images: int, feature_dim: int, num_labels: int) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(feature_dim))
        self.register_buffer("directions", torch.zeros(num_images, feature_dim, dtype=torch.float16))
        self.register_buffer("positive", torch.zeros(num_images, num_labels, dtype=torch.bool))
        self.register_buffer("known", torch.zeros(num_images, num_labels, dtype=torch.bool))
        self.register_buffer("variance", torch.tensor(1.0))
        self.register_buffer("weight", torch.tensor(0.0))

    @property
    def num_images(self) -> int:
        return len(self.directions)  # type: ignore[arg-type]

    @torch.no_grad()
    def remember(self, features: Float[Tensor, "M D"], targets: Num[Tensor, "M L"]) -> None:
        """Keep these images; targets 1, 0, or -1 for unknown."""
        annotation = read_targets(targets)
        self.centre.copy_(features.mean(dim=0))  # type: ignore[operator]
        self.directions.copy_(self._directions_of(features))  # type: ignore[operator]
        self.positive.copy_(annotation.positive)  # type: ignore[operator]
        self.known.copy_(annotation.known)  # type: ignore[operator]

    @torch.no_grad()
    def set_scale(self, variance: float, weight: float) -> None:
        """σ² and λ."""
        if not variance > 0 or not weight >= 0:
            raise ValueError(f"variance must be above 0 and weight at least 0; got {variance} and {weight}")
        self.variance.fill_(variance)  # type: ignore[operator]
        self.weight.fill_(weight)  # type: ignore[operator]

    @without_autocast
    def log_similarities(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B M"]:
        """log ρ to each of the remembered images."""
        directions: Tensor = self.directions  # type: ignore[assignment]
        cosines = self._directions_of(at_least_float32(features)) @ directions.float().T
        return (cosines - 1) / (4 * self.variance)  # type: ignore[operator]

    @without_autocast
    def shares(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B L"]:
        """p_k(n): which part of what is around an image carries each label."""
        # They do not change when a row's similarities are divided by their sum, which cannot underflow.
        likeness = self.log_similarities(features).softmax(dim=1)
        positive: Tensor = self.positive.float()  # type: ignore[assignment]
        known: Tensor = self.known.float()  # type: ignore[assignment]
        return (likeness @ positive) / (likeness @ known).clamp(min=1e-12)

    @without_autocast
    def forward(self, features: Float[Tensor, "B D"]) -> Float[Tensor, "B L"]:
        """The evidence for each label."""
        rates = self.positive.sum(dim=0) / self.known.sum(dim=0).clamp(min=1)  # type: ignore[operator]
        return self.weight * (_log_odds(self.shares(features)) - _log_odds(rates))  # type: ignore[operator]

    def _directions_of(self, features: Tensor) -> Tensor:
        return nn.functional.normalize(features - self.centre, dim=1)  # type: ignore[operator]


def _log_odds(shares: Tensor) -> Tensor:
    return torch.log(shares + SMOOTHING) - torch.log(1 - shares + SMOOTHING)
