"""A similarity-weighted vote of the training images."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.kernels.targets import read_targets
from kmcl.methods.output import HeadOutput
from kmcl.options.posthoc import KernelVoteOptions
from kmcl.posthoc.interface import CHANCE, PosthocPart
from kmcl.shapes import Float, Num

SMOOTHING = 1e-3
"""Added to both shares before their ratio is taken, so that a share of 0 has finite odds."""

VARIANCES = (0.0125, 0.0175, 0.025, 0.0375)
WEIGHTS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
VARIANCE_WITHOUT_VOTE = 0.025


class KernelVote(PosthocPart):
    """Nadaraya-Watson estimate of the labels from the training images, with a Bhattacharyya kernel.

    An image's kernel has the direction u of its centred features as mean, and a variance σ² that all share.
    The Bhattacharyya coefficient (Eq. 1) of two such kernels is

        ρ(n, m) = exp(-‖u_n - u_m‖² / 8σ²) = exp((u_n · u_m - 1) / 4σ²)

    and the share of label k around image n is its mean over the training images, weighted by similarity:

        p_k(n) = Σ_m ρ(n, m) y_mk / Σ_m ρ(n, m)            over the images m of which k is known
        correction_k(n) = λ [ log-odds of p_k(n) - log-odds of k among all stored training images ]

    Directions are stored as float16. A new part has λ = 0 and corrects nothing. A part that val gives the
    weight 0 is saved all the same: it shows which labels go together.
    """

    Options = KernelVoteOptions

    centre: Tensor
    directions: Tensor
    positive: Tensor
    known: Tensor
    variance: Tensor
    weight: Tensor

    def __init__(
        self, encoder: Encoder | None, num_labels: int, *, num_images: int = 0, feature_dim: int = 1
    ) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(feature_dim))
        self.register_buffer("directions", torch.zeros(num_images, feature_dim, dtype=torch.float16))
        self.register_buffer("positive", torch.zeros(num_images, num_labels, dtype=torch.bool))
        self.register_buffer("known", torch.zeros(num_images, num_labels, dtype=torch.bool))
        self.register_buffer("variance", torch.tensor(1.0))
        self.register_buffer("weight", torch.tensor(0.0))

    @property
    def sizes(self) -> dict[str, int]:
        return {"num_images": self.num_images, "feature_dim": len(self.centre)}

    @property
    def num_images(self) -> int:
        return len(self.directions)

    def observe(self, encoded: EncoderFeatures, output: HeadOutput) -> Float[Tensor, "B S"]:
        """The features that the head scores."""
        return output.features

    @torch.no_grad()
    def fit_images(self, features: Float[Tensor, "M S"], targets: Num[Tensor, "M L"]) -> None:
        """Store all these images."""
        annotation = read_targets(targets)
        self.centre = features.mean(dim=0)
        self.directions = self.directions_of(features).half()
        self.positive, self.known = annotation.positive, annotation.known

    @torch.no_grad()
    def tune(
        self,
        observations: Float[Tensor, "N S"],
        logits: Float[Tensor, "N L"],
        score: Callable[[Tensor], float],
    ) -> Float[Tensor, "N L"]:
        """Variance and weight with the best score; weight 0 where that gains no more than `CHANCE`.

        The best of 28 settings is a little better on val whether or not the vote helps: after a Gaussian
        process it rarely does.
        """
        observations = observations.to(self.weight.device)
        best_score, corrected = score(logits) + CHANCE, logits
        best = (VARIANCE_WITHOUT_VOTE, 0.0)
        for variance in VARIANCES:
            self.set_scale(variance, 1.0)
            vote = self(observations).to(logits.device)
            for weight in WEIGHTS:
                candidate = logits + weight * vote
                found = score(candidate)
                if found > best_score:
                    best_score, best, corrected = found, (variance, weight), candidate
        self.set_scale(*best)
        return corrected

    @torch.no_grad()
    def set_scale(self, variance: float, weight: float) -> None:
        """σ² and λ."""
        if not variance > 0 or not weight >= 0:
            raise ValueError(f"variance must be above 0 and weight at least 0; got {variance} and {weight}")
        self.variance.fill_(variance)
        self.weight.fill_(weight)

    @without_autocast
    def log_similarities(self, features: Float[Tensor, "B S"]) -> Float[Tensor, "B M"]:
        """log ρ to each of the stored images."""
        cosines = self.directions_of(at_least_float32(features)) @ self.directions.float().T
        return (cosines - 1) / (4 * self.variance)

    @without_autocast
    def shares(self, features: Float[Tensor, "B S"]) -> Float[Tensor, "B L"]:
        """p_k(n): the share of similar training images that carry each label.

        Where float32 cannot hold the similarity to any image of which k is known, it is k's rate, which
        corrects nothing; with the variances of `VARIANCES` that cannot happen.
        """
        # Dividing a row's similarities by their sum does not change the shares; the largest is at least 1/M.
        likeness = self.log_similarities(features).softmax(dim=1)
        known = likeness @ self.known.float()
        smallest = torch.finfo(known.dtype).tiny
        shares = (likeness @ self.positive.float()) / known.clamp(min=smallest)
        return shares.where(known >= smallest, self.rates)

    @without_autocast
    def forward(self, observations: Float[Tensor, "B S"]) -> Float[Tensor, "B L"]:
        return self.weight * (_log_odds(self.shares(observations)) - _log_odds(self.rates))

    @property
    def rates(self) -> Float[Tensor, " L"]:
        """The share of each label among the stored images of which it is known, 0 where there are none."""
        return self.positive.sum(dim=0) / self.known.sum(dim=0).clamp(min=1)

    def directions_of(self, features: Float[Tensor, "B S"]) -> Float[Tensor, "B S"]:
        """u of images."""
        return nn.functional.normalize(features - self.centre, dim=1)


def _log_odds(shares: Tensor) -> Tensor:
    return torch.log(shares + SMOOTHING) - torch.log(1 - shares + SMOOTHING)
