"""Draw the figures of the pages: the method from the functions that compute it, imports from the source.

    python docs/building/draw_figures.py [FOLDER]

The files are kept in docs/figures, so that the pages read without building anything.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from torch import Tensor

from building.draw_imports import describe_edges, draw_imports
from building.package_graph import read_graph
from kmcl.kernels import KernelMixture, log_components, log_kernel
from kmcl.losses import asymmetric_loss, contrastive_loss, reconstruction_loss
from kmcl.reports.drawing import COLOURS, FULL_WIDTH, GRID, INK, figure_style, new_figure
from kmcl.reports.similarity_figure import similarity_picture

FOLDER = Path(__file__).parents[1] / "figures"
LABELS = ("person", "dog", "bicycle", "bus")
PRESENT = (True, True, False, False)


def example_mixture() -> KernelMixture:
    """One image in a feature space of one dimension, where kernels can be drawn."""
    return KernelMixture(
        logits=torch.tensor([[2.0, 1.0, -0.5, -2.0]]),
        means=torch.tensor([[0.6, -1.2, 3.2, -4.0]]),
        variances=torch.tensor([[1.2, 2.5, 1.6, 3.0]]),
        feature_dim=1,
    )


def at_points(mixture: KernelMixture, points: Tensor) -> KernelMixture:
    """The same mixture once for each point, so that the kernels are evaluated at all of them."""
    count = len(points)
    return KernelMixture(
        mixture.logits.expand(count, -1),
        mixture.means.expand(count, -1),
        mixture.variances.expand(count, -1),
        feature_dim=1,
    )


def draw_pipeline() -> Figure:
    figure = new_figure(FULL_WIDTH, 3.0)
    axes = figure.add_subplot()
    axes.set(xlim=(-1, 101), ylim=(1, 33))
    axes.axis("off")
    _box(axes, 0, 12, 13, 10, "images\nB x 3 x S x S")
    _box(axes, 18, 12, 13, 10, "encoder\n(any of timm's)")
    _box(axes, 36, 12, 12, 10, "features f\nB x D")
    _box(axes, 53, 12, 19, 10, "kernel mixture head\nπ, μ, σ² of each label\n(Eq. 4)", COLOURS[0])
    terms = (
        (24, "reconstruction, Eq. 5\nown labels explain f"),
        (13, "classification, Eq. 6\nπ is right"),
        (2, "contrastive, Eq. 7\nshared labels, like kernels"),
    )
    for (height, text), colour in zip(terms, COLOURS[1:], strict=False):
        _box(axes, 77, height, 23, 8, text, colour)
        _arrow(axes, (72, 17), (77, height + 4))
    for start, end in ((13, 18), (31, 36), (48, 53)):
        _arrow(axes, (start, 17), (end, 17))
    axes.text(62.5, 6, "prediction: π, with σ beside it", ha="center", fontsize=8.5, color=INK)
    _arrow(axes, (62.5, 12), (62.5, 8))
    return figure


def draw_mixture() -> Figure:
    """The kernels of an image's labels, the feature vector, and who explains it."""
    mixture = example_mixture()
    points = torch.linspace(-8, 7, 400).unsqueeze(1)
    spread = at_points(mixture, points)
    kernels, components = log_kernel(points, spread).exp(), log_components(points, spread).exp()
    here = torch.tensor([[1.7]])
    shares = log_components(here, mixture).softmax(dim=1)[0]
    figure = new_figure(FULL_WIDTH, 3.3)
    left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": (2, 1)})
    for k, label in enumerate(LABELS):
        style = "-" if PRESENT[k] else "--"
        name = f"{label}: π = {mixture.probabilities[0, k]:.2f}, σ = {mixture.variances[0, k].sqrt():.2f}"
        left.plot(points[:, 0], components[:, k], style, color=COLOURS[k], label=name)
        left.plot(points[:, 0], kernels[:, k], color=COLOURS[k], linewidth=0.7, alpha=0.5)
    left.axvline(float(here), color=INK, linewidth=1)
    left.text(float(here) + 0.1, 1.02, "f", color=INK, fontsize=11)
    left.set(
        title="π g(x) of each label (thin: g alone)", xlabel="feature space, one dimension", ylim=(0, 1.45)
    )
    left.legend(loc="upper left", ncols=2)
    heights = [float(share) for share in shares]
    bars = right.barh(LABELS, heights, color=COLOURS[: len(LABELS)])
    for bar, present in zip(bars, PRESENT, strict=True):
        bar.set_hatch("" if present else "///")
        bar.set_edgecolor("white")
    targets = torch.tensor([PRESENT]).float()
    loss = float(reconstruction_loss(here, mixture, targets))
    right.set(
        title="share of the mixture at f",
        xlim=(0, 1),
        xlabel=f"present labels hold {sum(heights[:2]):.2f}: L_REC = {loss:.2f}",
    )
    right.invert_yaxis()
    return figure


def draw_terms() -> Figure:
    figure = new_figure(FULL_WIDTH, 3.2)
    reconstruction, classification, contrastive = figure.subplots(1, 3)
    _draw_reconstruction(reconstruction)
    _draw_classification(classification)
    _draw_contrastive(contrastive)
    return figure


def _draw_reconstruction(axes: Axes) -> None:
    """Eq. 5 as the feature vector moves away from the present labels' kernels."""
    mixture, points = example_mixture(), torch.linspace(-6, 6, 100)
    targets = torch.tensor([PRESENT]).float()
    losses = [float(reconstruction_loss(point.reshape(1, 1), mixture, targets)) for point in points]
    axes.plot(points, losses, color=COLOURS[1])
    for k in range(2):
        axes.axvline(float(mixture.means[0, k]), color=COLOURS[k], linewidth=1, linestyle=":")
    axes.set(
        title="reconstruction (Eq. 5)",
        xlabel="feature f; dotted: means of the present labels",
        ylim=(0, None),
    )


def _draw_classification(axes: Axes) -> None:
    """Eq. 6 against binary cross-entropy for one label."""
    logits = torch.linspace(-6, 6, 120)
    for present, colour in ((True, COLOURS[0]), (False, COLOURS[4])):
        target = torch.tensor([[float(present)]])
        word = "present" if present else "absent"
        for plain, style in ((False, "-"), (True, ":")):
            options: dict[str, Any] = {"negative_focus": 0.0, "probability_margin": 0.0} if plain else {}
            losses = [float(asymmetric_loss(logit.reshape(1, 1), target, **options)) for logit in logits]
            name = f"{word}, cross-entropy" if plain else word
            axes.plot(logits.sigmoid(), losses, style, color=colour, label=name)
    axes.set(title="classification (Eq. 6)", xlabel="probability π", ylim=(0, 5))
    axes.legend()


def _draw_contrastive(axes: Axes) -> None:
    """Eq. 7 for three images, two of which share a label, as the two kernels move apart."""
    gaps = torch.linspace(0, 6, 80)
    targets = torch.tensor([[1.0], [1.0], [0.0]])
    for temperature, style in ((0.2, "-"), (0.5, "--"), (1.0, ":")):
        losses = []
        for gap in gaps:
            means = torch.tensor([[0.0], [float(gap)], [3.0]])
            mixture = KernelMixture(torch.zeros(3, 1), means, torch.full((3, 1), 1.5), feature_dim=1)
            losses.append(float(contrastive_loss(mixture, targets, temperature=temperature)))
        axes.plot(gaps, losses, style, color=COLOURS[3], label=f"τ = {temperature:g}")
    axes.axvline(3, color=GRID, linewidth=4, zorder=0)
    axes.set(
        title="contrastive (Eq. 7)",
        xlabel="gap of two kernels of a shared label\n(grey: an image without it)",
        ylim=(0, None),
    )
    axes.legend()


def _box(axes: Axes, x: float, y: float, width: float, height: float, text: str, colour: str = INK) -> None:
    shape = FancyBboxPatch(
        (x, y),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=1",
        facecolor="white",
        edgecolor=colour,
        linewidth=1.6,
    )
    axes.add_patch(shape)
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=8.5, color=INK)


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    axes.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=10, color=INK, linewidth=1))


FIGURES = {
    "pipeline": draw_pipeline,
    "mixture": draw_mixture,
    "terms": draw_terms,
    "imports": draw_imports,
}


def draw_all(folder: Path) -> list[Path]:
    """Write every figure of the pages; the surfaces of the similarity figure are smaller as pixels."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with figure_style():
        for name, draw in FIGURES.items():
            written.append(folder / f"{name}.svg")
            about = describe_edges(read_graph()) if name == "imports" else None
            draw().savefig(written[-1], metadata={"Date": None, "Description": about})
        written.append(folder / "similarity.png")
        similarity_picture().figure.savefig(written[-1], dpi=110)
    return written


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
