"""How unlike the training images an image is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.methods.output import HeadOutput
from kmcl.posthoc.direction_residual import DirectionResidual
from kmcl.posthoc.gaussian_distance import GaussianDistance
from kmcl.posthoc.interface import PosthocPart
from kmcl.posthoc.options import PosthocOptions
from kmcl.posthoc.val_shares import ValShares
from kmcl.shapes import Float, Num

LEAST_VAL_IMAGES = 20
"""With fewer, no image can be among the 5 % that are most unlike the training images."""
LEAST_DEVIATION = 1e-6
NUM_STAGES = 1
"""Of the tapped stages, the first: later ones have learned to ignore noise, blur and compression."""
STAGE_FROM = 2.5
STAGE_WEIGHT = 3.0
"""A stage counts only from so many deviations above the mean of val on, and then more than the other numbers.
It does not see what an image shows, so below that it would only blur what the others say.
"""


class UnfamiliarityOptions(PosthocOptions):
    name: Literal["unfamiliarity"] = "unfamiliarity"


class Unfamiliarity(PosthocPart):
    """The share of val that is less unlike the training images; it corrects no logits.

    Three numbers say how unlike them an image is: the energy e of the corrected logits f_k, negative,
    -Σ_k log(1 + exp f_k) (JointEnergy); the share r of the encoder's pooled features outside their main
    directions (`DirectionResidual`); and, where there are frozen stages, a Mahalanobis distance d of the mean
    and deviation of each channel of the maps of one (`GaussianDistance`). Each is standardised by its mean
    and deviation over val, to z_e, z_r and z_d. An image is the more unlike the training images the larger

        t = φ(z_e) + φ(z_r) + 3 φ(max(0, z_d - 2.5))        where φ(z) = z + max(0, z)² / 2

    is: φ grows about as the logarithm of a normal distribution's upper tail falls, so that t, as Fisher's
    method, adds up evidence. The unfamiliarity is the share of val whose t is smaller (`ValShares`).
    """

    Options = UnfamiliarityOptions
    corrects_logits = False
    gives_unfamiliarity = True
    reads_frozen_stages = True

    component_means: Tensor
    component_deviations: Tensor
    starts: Tensor
    floors: Tensor
    weights: Tensor

    def __init__(self, encoder: Encoder, num_labels: int, *, num_quantiles: int = 1) -> None:
        super().__init__()
        stages = encoder.statistic_widths[:NUM_STAGES] if encoder.num_frozen_stages else ()
        self.widths = (*stages, encoder.feature_dim)
        of_stages = [GaussianDistance(width) for width in stages]
        self.distances = nn.ModuleList([*of_stages, DirectionResidual(encoder.feature_dim)])
        self.register_buffer("component_means", torch.zeros(1 + len(self.widths)))
        self.register_buffer("component_deviations", torch.ones(1 + len(self.widths)))
        for name, of_stage, of_others in (
            ("starts", STAGE_FROM, 0.0),
            ("floors", 0.0, -math.inf),
            ("weights", STAGE_WEIGHT, 1.0),
        ):
            values = torch.tensor([of_others, *[of_stage] * len(stages), of_others])
            self.register_buffer(name, values, persistent=False)
        self.shares = ValShares(num_quantiles)
        self._num_val_images = num_quantiles

    @property
    def sizes(self) -> dict[str, int]:
        return {"num_quantiles": len(self.shares.quantiles)}

    @property
    def is_worth_keeping(self) -> bool:
        return self._num_val_images >= LEAST_VAL_IMAGES

    @without_autocast
    def observe(self, encoded: EncoderFeatures, output: HeadOutput) -> Float[Tensor, "B S"]:
        statistics = () if encoded.taps is None else encoded.taps.statistics[: len(self.widths) - 1]
        return torch.cat([at_least_float32(vector) for vector in (*statistics, encoded.pooled)], dim=1)

    @torch.no_grad()
    def fit_images(self, observations: Float[Tensor, "M S"], targets: Num[Tensor, "M L"]) -> None:
        for distance, vectors in zip(self.distances, self._vectors(observations), strict=True):
            distance.fit(vectors)  # type: ignore[operator]

    @torch.no_grad()
    def tune(
        self,
        observations: Float[Tensor, "N S"],
        logits: Float[Tensor, "N L"],
        score: Callable[[Tensor], float],
    ) -> Float[Tensor, "N L"]:
        """The scale of the unfamiliarity, from val; the logits stay as they are."""
        observations, corrected = observations.to(self.component_means), logits.to(self.component_means)
        deviations, self.component_means = torch.std_mean(
            self._components(observations, corrected), dim=0, correction=0
        )
        self.component_deviations = deviations.clamp(min=LEAST_DEVIATION)
        self.shares.fit(self.statistic(observations, corrected))
        self._num_val_images = len(observations)
        return logits

    @without_autocast
    def unfamiliarity(
        self, observations: Float[Tensor, "B S"], logits: Float[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        shares: Tensor = self.shares(self.statistic(at_least_float32(observations), at_least_float32(logits)))
        return shares

    def statistic(
        self, observations: Float[Tensor, "B S"], logits: Float[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """t."""
        standardised = (
            self._components(observations, logits) - self.component_means
        ) / self.component_deviations
        counted = torch.maximum(standardised - self.starts, self.floors)
        return (counted + counted.relu().square() / 2) @ self.weights

    def _components(self, observations: Tensor, logits: Tensor) -> Tensor:
        distances = [
            distance(vectors)
            for distance, vectors in zip(self.distances, self._vectors(observations), strict=True)
        ]
        return torch.stack([-functional.softplus(logits).sum(dim=1), *distances], dim=1)

    def _vectors(self, observations: Tensor) -> tuple[Tensor, ...]:
        return torch.split(observations, list(self.widths), dim=1)
