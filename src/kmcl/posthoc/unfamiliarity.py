"""How unlike the training images an image is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.methods.output import HeadOutput
from kmcl.options.posthoc import UnfamiliarityOptions
from kmcl.posthoc.interface import PosthocPart
from kmcl.shapes import Float, Num

LEAST_VAL_IMAGES = 20
"""With fewer, no image can be among the 5 % that are most unlike the training images."""
LEAST_DEVIATION = 1e-6
"""A number that varies less than this is treated as constant."""
SUMMARY_SIZE = 8
"""Numbers that summarise an image's features, with an equal share for the stage and the pooled features."""
NUM_STAGES = 1
"""Of the tapped stages, the first: later ones have learned to ignore noise, blur and compression."""
NO_FLOOR = -math.inf
MOST_CONTENT = 2.0
"""Deviations of the energy below the mean of val; beyond them no smaller residual is expected."""


class Count(NamedTuple):
    """How a number counts: weight · φ(max(floor, z - start))."""

    weight: float
    start: float
    floor: float


STAGE = Count(3.0, 2.5, 0.0)
"""It does not see what an image shows, so below its start it would only blur what the others say."""
RESIDUAL = Count(1.0, 0.0, NO_FLOOR)
ENERGY = Count(1.0, 0.5, 0.0)
LARGEST_LOGIT = Count(0.5, 0.0, NO_FLOOR)


class Unfamiliarity(PosthocPart):
    """The share of val that is less unlike the training images; it corrects no logits.

    Four numbers say how unlike them an image is: the energy e of the corrected logits f_k, negative,
    -Σ_k log(1 + exp f_k) (JointEnergy); the largest of these logits, negative, m; the share r of the
    encoder's pooled features outside their main directions (`DirectionResidual`); and, where there are frozen
    stages, a Mahalanobis distance d of the mean and deviation of each channel of the maps of one
    (`GaussianDistance`). Each is standardised by its mean and deviation over val, to z_e, z_m, z_r and z_d.

    An image with many labels has a low energy and mostly a small residual, whether or not there is something
    new in it. So r is compared with what is usual beside that energy: u = z_r - β min(0, max(-2, z_e)), where
    β is the correlation of z_e and z_r over val, is standardised to z_u. An image is the more unlike the
    training images the larger

        t = φ(z_u) + φ(z_m) / 2 + φ(max(0, z_e - 0.5)) + 3 φ(max(0, z_d - 2.5))
        φ(z) = z + max(0, z)² / 2

    is: φ grows about as the logarithm of a normal distribution's upper tail falls, so that t, as Fisher's
    method, adds up evidence. The unfamiliarity is the share of val whose t is smaller (`ValShares`).

    The directions that these numbers need also summarise an image's features (`feature_summary`), by which a
    drift of the images is noticed.

    num_quantiles: of the shares
    """

    Options = UnfamiliarityOptions
    corrects_logits = False
    gives_unfamiliarity = True
    reads_frozen_stages = True

    component_means: Tensor
    component_deviations: Tensor
    energy_slope: Tensor
    starts: Tensor
    floors: Tensor
    weights: Tensor

    def __init__(self, encoder: Encoder, num_labels: int, *, num_quantiles: int = 1) -> None:
        super().__init__()
        stages = encoder.statistic_widths[:NUM_STAGES] if encoder.num_frozen_stages else ()
        self.widths = (*stages, encoder.feature_dim)
        of_stages = [GaussianDistance(width) for width in stages]
        distances: list[GaussianDistance | DirectionResidual] = [
            *of_stages,
            DirectionResidual(encoder.feature_dim),
        ]
        self.distances = nn.ModuleList(distances)
        each = SUMMARY_SIZE // len(distances)
        self._summarised = [min(each, distance.directions.shape[1]) for distance in distances]
        counts = [ENERGY, *[STAGE] * len(stages), RESIDUAL, LARGEST_LOGIT]
        self._residual_place = 1 + len(stages)
        self.register_buffer("component_means", torch.zeros(len(counts)))
        self.register_buffer("component_deviations", torch.ones(len(counts)))
        self.register_buffer("energy_slope", torch.zeros(len(counts)))
        for name, values in (
            ("weights", [count.weight for count in counts]),
            ("starts", [count.start for count in counts]),
            ("floors", [count.floor for count in counts]),
        ):
            self.register_buffer(name, torch.tensor(values), persistent=False)
        self.shares = ValShares(num_quantiles)
        self._num_val_images = num_quantiles

    @property
    def sizes(self) -> dict[str, int]:
        return {"num_quantiles": len(self.shares.quantiles)}

    @property
    def summary_size(self) -> int:
        return sum(self._summarised)

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
        components = self._components(observations, corrected)
        deviations, self.component_means = torch.std_mean(components, dim=0, correction=0)
        self.component_deviations = deviations.clamp(min=LEAST_DEVIATION)
        self._fit_energy_slope((components - self.component_means) / self.component_deviations)
        self.shares.fit(self.statistic(observations, corrected))
        self._num_val_images = len(observations)
        return logits

    def _fit_energy_slope(self, standardised: Float[Tensor, "N K"]) -> None:
        """From here on the mean and deviation of the residual are such that it becomes z_u."""
        place = self._residual_place
        content = _content(standardised)
        slope = (standardised[:, 0] * standardised[:, place]).mean()
        deviation, mean = torch.std_mean(standardised[:, place] - slope * content, correction=0)
        deviation = deviation.clamp(min=LEAST_DEVIATION)
        self.component_means[place] += self.component_deviations[place] * mean
        self.component_deviations[place] *= deviation
        self.energy_slope = torch.zeros_like(self.energy_slope)
        self.energy_slope[place] = slope / deviation

    @without_autocast
    def unfamiliarity(
        self, observations: Float[Tensor, "B S"], logits: Float[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        shares: Tensor = self.shares(self.statistic(at_least_float32(observations), at_least_float32(logits)))
        return shares

    def feature_summary(self, observations: Float[Tensor, "B S"]) -> Float[Tensor, "B K"]:
        """Where an image lies along the first main directions of the stage, in deviations of the training
        images, and of the pooled features as unit vectors, between -1 and 1.
        """
        parts = zip(self.distances, self._vectors(observations), self._summarised, strict=True)
        places = [distance.places(vectors, number) for distance, vectors, number in parts]  # type: ignore[operator]
        return torch.cat(places, dim=1)

    def statistic(
        self, observations: Float[Tensor, "B S"], logits: Float[Tensor, "B L"]
    ) -> Float[Tensor, " B"]:
        """t."""
        standardised = (
            self._components(observations, logits) - self.component_means
        ) / self.component_deviations
        standardised = standardised - _content(standardised).unsqueeze(1) * self.energy_slope
        counted = torch.maximum(standardised - self.starts, self.floors)
        return (counted + counted.relu().square() / 2) @ self.weights

    def _components(self, observations: Tensor, logits: Tensor) -> Float[Tensor, "B K"]:
        """e, d of each stage, r, m."""
        distances = [
            distance(vectors)
            for distance, vectors in zip(self.distances, self._vectors(observations), strict=True)
        ]
        energy, largest = -functional.softplus(logits).sum(dim=1), -logits.amax(dim=1)
        return torch.stack([energy, *distances, largest], dim=1)

    def _vectors(self, observations: Tensor) -> tuple[Tensor, ...]:
        return torch.split(observations, list(self.widths), dim=1)


def _content(standardised: Float[Tensor, "B K"]) -> Float[Tensor, " B"]:
    """min(0, max(-2, z_e))."""
    return -standardised[:, 0].neg().relu().clamp(max=MOST_CONTENT)


GAUSSIAN_DIRECTIONS = 256
SHRINKAGE = 1e-3
"""Added to every variance, as a share of their mean: directions in which the vectors hardly differ would
decide alone.
"""


class GaussianDistance(nn.Module):
    """The logarithm of the squared Mahalanobis distance to a fitted Gaussian.

    With z the vector, each number of it standardised, v_j the main directions and λ_j their variances,

        D = Σ_j (v_j · z)² / (λ_j + ε) + (‖z‖² - Σ_j (v_j · z)²) / (λ + ε)

    where λ is the mean variance of the directions beyond the first `GAUSSIAN_DIRECTIONS`, which have no term
    of their own. The covariance is shrunk by ε.

    width: of the vectors
    """

    centre: Tensor
    scale: Tensor
    directions: Tensor
    precisions: Tensor
    rest_precision: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        num_directions = min(width, GAUSSIAN_DIRECTIONS)
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


RESIDUAL_DIRECTIONS = 128
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
        num_directions = max(1, min(RESIDUAL_DIRECTIONS, width // LARGEST_SHARE))
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


MOST_QUANTILES = 500


class ValShares(nn.Module):
    """The share of n values of val that are smaller than a new one, as a continuous increasing function.

    At the values q_1 < ... < q_Q of val, whose ranks are r_1 = 1 < ... < r_Q = n, it is

        h_1 = 0,    h_j = r_(j-1) / (n + 1)

    with straight lines between them; beyond q_Q it approaches n / (n + 1). All values of val are used, or
    `MOST_QUANTILES` of them with equal spaces between their ranks. The function is never above the share of
    all n + 1 values (those of val and the new one) that are at most the new one and of val. So if the new
    value is drawn as those of val are, it reaches 1 - a with a probability of at most a.
    """

    quantiles: Tensor
    heights: Tensor

    def __init__(self, num_quantiles: int) -> None:
        super().__init__()
        self.register_buffer("quantiles", torch.zeros(num_quantiles))
        self.register_buffer("heights", torch.zeros(num_quantiles + 1))

    @torch.no_grad()
    def fit(self, values: Float[Tensor, " N"]) -> None:
        number = len(values)
        ranks = torch.linspace(1, number, min(number, MOST_QUANTILES), dtype=torch.float64).round().long()
        self.quantiles = values.sort().values[ranks.to(values.device) - 1].to(self.quantiles)
        heights = torch.cat([torch.zeros(1, dtype=torch.int64), ranks]).double() / (number + 1)
        self.heights = heights.to(self.heights)

    def forward(self, values: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        # What holds of val alone comes first: in an exported file it is a constant.
        lower, upper = self.quantiles[:-1], self.quantiles[1:]
        smallest = torch.finfo(values.dtype).tiny
        slopes = 1 / (upper - lower).clamp(min=smallest)
        steps = self.heights[1:-1] - self.heights[:-2]
        spread = (self.quantiles[-1] - self.quantiles[0]).clamp(min=smallest)
        last_step = self.heights[-1] - self.heights[-2]
        passed = ((values.unsqueeze(1) - lower) * slopes).clamp(0, 1)
        beyond = (values - self.quantiles[-1]).relu()
        return passed @ steps + last_step * beyond / (beyond + spread)
