"""A Gaussian process on the features of the encoder before training."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from kmcl.encoders import Encoder, EncoderFeatures, StageTaps
from kmcl.encoders.stages import cell_means, statistics_of
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.kernels.targets import read_targets
from kmcl.methods.output import HeadOutput
from kmcl.options.posthoc import STAGES_WITH_STATISTICS, FrozenGPOptions
from kmcl.posthoc.interface import CHANCE, PosthocPart
from kmcl.shapes import Float, Num

Entry = TypeVar("Entry")

SMOOTHNESS = ((0.2, 0.5), (0.2, 2.0), (1.6, 2.0))
"""Variance and noise, from the sharpest process to the smoothest; the choice is made on val. Photographs are
best with the first, X-rays of patients whom the training images do not show with the last.
"""
DEFAULT_SMOOTHNESS = 1
WEIGHTS = (0.5, 1.0, 2.0, 4.0, 8.0)
MOST_DIRECTIONS = 384
"""More change no prediction that is measurable, and make the model larger (docs/research/default.md)."""
SHRINKAGE = 0.1
"""Of the score on val, divided by √N for its N images: what another smoothness must gain, and what each
doubling or halving of the weight must (docs/research/default.md).
"""
LEAST_DEVIATION = 1e-6
"""A statistic that varies less than this over the training images is treated as constant."""


class FrozenFeatureGP(PosthocPart):
    """Gaussian process regression of the labels on statistics of frozen feature maps.

    An image is described by the mean and deviation of each channel of its feature maps: of the encoder's last
    frozen `stages` and, if `last_map`, of its last map, for which the part holds a copy of the later stages
    from before training; and by the means in `grid` x `grid` cells of the last frozen map. Standardised, with
    equal shares for all maps, projected on their main directions and made a unit vector u, that is the mean
    of the image's kernel; a variance σ² is shared by all. The Bhattacharyya coefficients (Eq. 1) of such
    kernels,

        ρ(n, m) = exp(-‖u_n - u_m‖² / 8σ²) = exp((u_n · u_m - 1) / 4σ²)

    are a covariance function. With the labels of M training images, observed with noise ν, the posterior mean
    is the correction:

        correction_k(n) = λ Σ_m ρ(n, m) α_mk / s_k            where (ρ + ν I) α_k = y_k - p_k

    with p_k the frequency of label k and s_k = √(p_k (1 - p_k)). Where a label is unknown, y_k is p_k.
    Directions are stored as float16, those of images and the main ones. A new part has λ = 0. Val decides on
    σ² and ν, a pair of `SMOOTHNESS`, by the process alone, and then on λ, one of `WEIGHTS`; or 0, where each
    of them costs more than `CHANCE`. The fewer images val has, the nearer these stay to their defaults.
    """

    Options = FrozenGPOptions

    centre: Tensor
    scale: Tensor
    projection: Tensor
    directions: Tensor
    coefficients: Tensor
    variance: Tensor
    weight: Tensor

    def __init__(
        self,
        encoder: Encoder,
        num_labels: int,
        *,
        num_images: int = 0,
        last_map: int = True,
        stages: int = STAGES_WITH_STATISTICS,
        grid: int = 0,
    ) -> None:
        """encoder: before training, with frozen stages."""
        super().__init__()
        self.stages = stages
        of_stages = encoder.statistic_widths
        self.grid = grid if of_stages else 0
        self.later_stages: nn.Module | None = None
        self.widths = _last(of_stages, stages)
        if self.grid:
            self.widths = (*self.widths, of_stages[-1] // 2 * self.grid**2)
        if last_map or not self.widths:  # feature vectors are one map, the last
            self.later_stages = copy.deepcopy(encoder.rest()).requires_grad_(False).eval()
            self.widths = (*self.widths, 2 * encoder.spatial_dim)
        num_statistics = sum(self.widths)
        num_directions = min(MOST_DIRECTIONS, num_statistics, num_images)
        self.register_buffer("centre", torch.zeros(num_statistics))
        self.register_buffer("scale", torch.zeros(num_statistics))
        self.register_buffer("projection", torch.zeros(num_statistics, num_directions, dtype=torch.float16))
        self.register_buffer("directions", torch.zeros(num_images, num_directions, dtype=torch.float16))
        self.register_buffer("coefficients", torch.zeros(num_images, num_labels))
        self.register_buffer("variance", torch.tensor(SMOOTHNESS[DEFAULT_SMOOTHNESS][0]))
        self.register_buffer("weight", torch.tensor(0.0))
        self._residuals: Tensor | None = None
        self._solved: dict[tuple[float, float], Tensor] = {}

    @property
    def sizes(self) -> dict[str, int]:
        last_map = int(self.later_stages is not None)
        return {
            "num_images": len(self.directions),
            "last_map": last_map,
            "stages": self.stages,
            "grid": self.grid,
        }

    @property
    def is_worth_keeping(self) -> bool:
        return float(self.weight) > 0

    def train(self, mode: bool = True) -> FrozenFeatureGP:
        """The part is never trained: norms always use their running statistics."""
        return super().train(False)

    def observe(self, encoded: EncoderFeatures, output: HeadOutput) -> Float[Tensor, "B S"]:
        if encoded.taps is None:
            raise ValueError("the encoder has no taps on its frozen stages")
        return self.statistics(encoded.taps)

    @without_autocast
    def statistics(self, taps: StageTaps) -> Float[Tensor, "B S"]:
        """Means and deviations of the feature maps and means in cells, given those of the frozen stages."""
        maps = taps.maps.to(self.centre.dtype)
        read = [each.to(self.centre.dtype) for each in _last(taps.statistics, self.stages)]
        if self.grid:
            read.append(cell_means(maps, self.grid))
        if self.later_stages is not None:
            last: Tensor = self.later_stages.forward_features(maps)  # type: ignore[operator]
            read.append(statistics_of(last))
        return torch.cat(read, dim=1)

    @torch.no_grad()
    def fit_images(self, statistics: Float[Tensor, "M S"], targets: Num[Tensor, "M L"]) -> None:
        """Solve for α with all these images, at the default smoothness."""
        found = main_directions(statistics, self.widths)
        self.centre, self.scale, self.projection = found.centre, found.scale, found.projection.half()
        self.directions = self.directions_of(statistics).half()
        annotation = read_targets(targets)
        positive, known = annotation.positive.float(), annotation.known.float()
        rates = positive.sum(dim=0) / known.sum(dim=0).clamp(min=1)
        deviations = (rates * (1 - rates)).sqrt().clamp(min=LEAST_DEVIATION)
        self._residuals = (positive - rates * known) / deviations
        self._solved.clear()
        self.set_smoothness(*SMOOTHNESS[DEFAULT_SMOOTHNESS])

    @torch.no_grad()
    def set_smoothness(self, variance: float, noise: float) -> None:
        """Solve for α with σ² and ν, once for each pair; only for a part that was just fitted."""
        if self._residuals is None:
            raise RuntimeError("the part has not been fitted, or was loaded")
        self.variance.fill_(variance)
        if (variance, noise) not in self._solved:
            covariance = self._similarities(self.directions.float())
            covariance.diagonal().add_(noise)
            solved = torch.cholesky_solve(self._residuals, torch.linalg.cholesky(covariance))
            self._solved[variance, noise] = solved.contiguous()
        self.coefficients = self._solved[variance, noise]

    @torch.no_grad()
    def tune(
        self,
        observations: Float[Tensor, "N S"],
        logits: Float[Tensor, "N L"],
        score: Callable[[Tensor], float],
    ) -> Float[Tensor, "N L"]:
        """The smoothness with the best score of the process alone, then the weight with the best score, both
        less a penalty for their distance from the defaults.

        Added to the logits, processes of different smoothness score nearly the same, and a small val would
        choose among them by chance; and so it would among weights.
        """
        observations = observations.to(self.weight.device)
        margin = SHRINKAGE / math.sqrt(len(observations))
        default = SMOOTHNESS[DEFAULT_SMOOTHNESS]
        alone = {
            smoothness: self._mean_with(smoothness, observations).to(logits) for smoothness in SMOOTHNESS
        }
        smoothness = max(alone, key=lambda pair: score(alone[pair]) - margin * (pair != default))
        candidates = {weight: logits + weight * alone[smoothness] for weight in WEIGHTS}
        scores = {weight: score(candidate) for weight, candidate in candidates.items()}
        weight = max(scores, key=lambda each: scores[each] - margin * abs(math.log2(each)))
        if score(logits) > scores[weight] + max(CHANCE, margin):
            weight, candidates = 0.0, {0.0: logits}
        self.set_smoothness(*smoothness)
        self.set_weight(weight)
        return candidates[weight]

    def _mean_with(self, smoothness: tuple[float, float], observations: Tensor) -> Float[Tensor, "N L"]:
        """The posterior mean, unweighted."""
        self.set_smoothness(*smoothness)
        self.set_weight(1.0)
        mean: Tensor = self(observations)
        return mean

    @torch.no_grad()
    def set_weight(self, weight: float) -> None:
        """λ."""
        if not weight >= 0:
            raise ValueError(f"weight must be at least 0; got {weight}")
        self.weight.fill_(weight)

    @without_autocast
    def forward(self, observations: Float[Tensor, "B S"]) -> Float[Tensor, "B L"]:
        similarities = self._similarities(self.directions_of(at_least_float32(observations)))
        return self.weight * (similarities @ self.coefficients)

    def _similarities(self, directions: Tensor) -> Tensor:
        return torch.exp((directions @ self.directions.to(directions.dtype).T - 1) / (4 * self.variance))

    def directions_of(self, statistics: Float[Tensor, "B S"]) -> Float[Tensor, "B D"]:
        """u of images."""
        return MainDirections(self.centre, self.scale, self.projection).unit_vectors(statistics)


class MainDirections(NamedTuple):
    """centre:     S, what is subtracted from the statistics of an image
    scale:      S, what each of them is then multiplied by
    projection: S x D, the main directions of what results, orthonormal
    """

    centre: Float[Tensor, " S"]
    scale: Float[Tensor, " S"]
    projection: Float[Tensor, "S D"]

    def unit_vectors(self, statistics: Float[Tensor, "B S"]) -> Float[Tensor, "B D"]:
        """u of images."""
        scaled = (statistics - self.centre) * self.scale
        return nn.functional.normalize(scaled @ self.projection.to(scaled.dtype), dim=1)


@torch.no_grad()
def main_directions(statistics: Float[Tensor, "M S"], widths: Sequence[int]) -> MainDirections:
    """The main directions of statistics that are standardised, with equal shares for all maps.

    widths: how many of the statistics each map has, in order
    """
    centre = statistics.mean(dim=0)
    scale = _scale(statistics.std(dim=0, correction=0), widths)
    num_directions = min(MOST_DIRECTIONS, *statistics.shape)
    with torch.random.fork_rng(devices=[]):  # the decomposition is randomised
        torch.manual_seed(0)
        _, _, main = torch.pca_lowrank((statistics - centre) * scale, num_directions, center=False)
    # Contiguous as a saved part is: the layout decides how products are rounded.
    return MainDirections(centre, scale, main.contiguous())


def _last(entries: tuple[Entry, ...], number: int) -> tuple[Entry, ...]:
    return entries[len(entries) - min(number, len(entries)) :]


def _scale(deviations: Tensor, widths: Sequence[int]) -> Tensor:
    shares = torch.cat([torch.full((width,), width**-0.5) for width in widths]).to(deviations)
    return torch.where(deviations > LEAST_DEVIATION, shares / deviations, 0.0)
