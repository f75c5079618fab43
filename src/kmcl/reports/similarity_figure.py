"""The paper's figure of similarities: ρ, Sim_M and Sim_G of two kernels, as surfaces and as contours.

(a) one-dimensional kernels over the differences of their means and deviations; (b) two-dimensional kernels
with different means and covariances, (c) different covariances only, (d) different means only. If covariances
differ, their mean is the common one of Sim_M, and its mean variance that of Sim_G; in one dimension these two
are then the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from kmcl.evaluation.ranking import Values
from kmcl.kernels import log_bhattacharyya, log_bhattacharyya_isotropic, log_gaussian, log_mahalanobis
from kmcl.reports.blocks import Picture, Table
from kmcl.reports.drawing import COLOURS, FULL_WIDTH, INK, SEQUENTIAL, figure_style, new_figure

MEAN_DEVIATION = 2.0
"""Mean of the two kernels' deviations on the surfaces, around which they differ."""


@dataclass(frozen=True)
class Kernel:
    """A two-dimensional kernel."""

    mean: tuple[float, float]
    covariance: tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Similarities:
    bhattacharyya: float
    mahalanobis: float
    gaussian: float


WIDE = ((3.0, 1.8), (1.8, 2.0))
TURNED = ((2.0, -1.2), (-1.2, 1.5))
PANELS = {
    "(b) other means, other covariances": (Kernel((-1.2, -0.7), WIDE), Kernel((1.2, 0.7), TURNED)),
    "(c) same means, other covariances": (Kernel((0.0, 0.0), WIDE), Kernel((0.0, 0.0), TURNED)),
    "(d) other means, same covariances": (Kernel((-1.2, -0.7), WIDE), Kernel((1.2, 0.7), WIDE)),
}


def similarities(first: Kernel, second: Kernel) -> Similarities:
    """Eq. 1, 2a and 2b for two kernels."""
    means = [torch.tensor(kernel.mean, dtype=torch.float64) for kernel in (first, second)]
    covariances = [torch.tensor(kernel.covariance, dtype=torch.float64) for kernel in (first, second)]
    pooled = (covariances[0] + covariances[1]) / 2
    isotropic = pooled.diagonal().mean() * torch.eye(2, dtype=torch.float64)
    return Similarities(
        bhattacharyya=float(log_bhattacharyya(means[0], covariances[0], means[1], covariances[1]).exp()),
        mahalanobis=float(log_mahalanobis(means[0], covariances[0], means[1], covariances[1]).exp()),
        gaussian=float(log_mahalanobis(means[0], isotropic, means[1], isotropic).exp()),
    )


def surfaces(num_points: int = 61) -> tuple[Values, Values, dict[str, Values]]:
    """Differences of means and of deviations, and each similarity over them (means x deviations)."""
    mean_gaps, deviation_gaps = np.linspace(-8, 8, num_points), np.linspace(-3, 3, num_points)
    means = torch.from_numpy(mean_gaps).unsqueeze(1)
    gaps = torch.from_numpy(deviation_gaps).unsqueeze(0)
    variances_p, variances_q = (MEAN_DEVIATION + gaps / 2) ** 2, (MEAN_DEVIATION - gaps / 2) ** 2
    origin = torch.zeros_like(means)
    rho = log_bhattacharyya_isotropic(means, variances_p, origin, variances_q, 1).exp()
    exponential = log_gaussian(means, variances_p, origin, variances_q, 1).exp()
    values = {"ρ": rho.numpy(), "Sim$_M$": exponential.numpy(), "Sim$_G$": exponential.numpy()}
    return mean_gaps, deviation_gaps, values


def similarity_picture() -> Picture:
    with figure_style():
        figure = new_figure(FULL_WIDTH, 6.4)
        _draw_surfaces(figure)
        found = _draw_contours(figure)
    rows = [
        (title, result.bhattacharyya, result.mahalanobis, result.gaussian) for title, result in found.items()
    ]
    words = "; ".join(f"{t}: rho {b:.2f}, Sim_M {m:.2f}, Sim_G {g:.2f}" for t, b, m, g in rows)
    return Picture(
        "similarity",
        figure,
        alt="Above, three surfaces over the differences of mean and deviation of two kernels: rho falls with "
        "both, Sim_M and Sim_G stay 1 along equal means. Below, contours of pairs of kernels: " + words + ".",
        caption="If only the covariances differ (c), Sim_M and Sim_G are 1 as for equal kernels; rho is not. "
        "The star is the highest value, 1, at no difference.",
        numbers=Table.of("similarities of the pairs", ("pair", "rho", "Sim_M", "Sim_G"), rows),
        wide=True,
    )


def _draw_surfaces(figure: Figure) -> None:
    mean_gaps, deviation_gaps, values = surfaces()
    grid = np.meshgrid(mean_gaps, deviation_gaps, indexing="ij")
    for place, (name, surface) in enumerate(values.items(), start=1):
        axes: Any = figure.add_subplot(2, 3, place, projection="3d")
        axes.plot_surface(*grid, surface, cmap=SEQUENTIAL, vmin=0, vmax=1, linewidth=0, rcount=60, ccount=60)
        axes.plot([0], [0], [1.02], marker="*", color=COLOURS[4], markersize=12, linestyle="", zorder=10)
        axes.set_zlim(0, 1.05)
        axes.set_xlabel("Δμ", labelpad=-6)
        axes.set_ylabel("Δσ", labelpad=-6)
        axes.tick_params(labelsize=7, pad=-3)
        axes.set_title(f"(a) {name}", loc="center")
        axes.view_init(elev=28, azim=-55)
        axes.computed_zorder = False


def _draw_contours(figure: Figure) -> dict[str, Similarities]:
    side = np.linspace(-5.6, 5.6, 141)
    x, y = np.meshgrid(side, side)
    found = {}
    for place, (title, kernels) in enumerate(PANELS.items(), start=4):
        axes = figure.add_subplot(2, 3, place)
        for colour, style, kernel in zip(COLOURS, ("solid", "dashed"), kernels, strict=False):
            values = _evaluate(kernel, x, y)
            axes.contour(
                x, y, values, levels=(0.1, 0.3, 0.6, 0.9), colors=colour, linewidths=1.4, linestyles=style
            )
            axes.plot(*kernel.mean, marker="+", color=colour, markersize=9, markeredgewidth=2)
        found[title] = similarities(*kernels)
        result = found[title]
        words = f"ρ = {result.bhattacharyya:.2f}   Sim$_M$ = {result.mahalanobis:.2f}"
        axes.set_xlabel(f"{words}   Sim$_G$ = {result.gaussian:.2f}", color=INK)
        axes.set_title(title, fontsize=9)
        axes.set_aspect("equal")
        axes.set(xticks=[], yticks=[])
    return found


def _evaluate(kernel: Kernel, x: Values, y: Values) -> Values:
    """exp(-½ (x - μ)ᵀ Σ⁻¹ (x - μ)) over a grid."""
    inverse = np.linalg.inv(np.array(kernel.covariance))
    gaps = np.stack([x - kernel.mean[0], y - kernel.mean[1]], axis=-1)
    return np.asarray(np.exp(-0.5 * np.einsum("...i,ij,...j->...", gaps, inverse, gaps)))
