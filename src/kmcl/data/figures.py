"""Figures of a dataset: labels per image as in the paper, and which labels occur together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from kmcl.data.describe import Description
from kmcl.errors import InputError

BAR_COLOUR = "#3b6ea5"
NUMBERED_LABELS = 20  # up to this many labels, cells show their numbers


def save_figures(description: Description, folder: Path) -> list[Path]:
    """Write both figures as PNG into a folder, which is created if needed; returns their paths."""
    figures = {
        "labels_per_image.png": plot_labels_per_image(description),
        "co_occurrence.png": plot_co_occurrence(description),
    }
    paths = [folder / name for name in figures]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, figure in zip(paths, figures.values(), strict=True):
            figure.savefig(path, format="png")
    except OSError as error:
        raise InputError(f"figures cannot be written to {folder}: {error.strerror}") from error
    return paths


def plot_labels_per_image(description: Description) -> Figure:
    """The relative frequency of images with 0, 1, 2, ... labels."""
    figure = Figure(figsize=(6, 4), layout="constrained", dpi=150)
    axes = figure.add_subplot()
    shares = description.labels_histogram
    axes.bar(range(len(shares)), shares, color=BAR_COLOUR, width=0.85)
    axes.set_xticks(range(0, len(shares), max(1, len(shares) // 15)))
    axes.set_xlabel("labels per image")
    axes.set_ylabel("relative frequency")
    axes.set_title(f"{description.name}: labels per image")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_co_occurrence(description: Description) -> Figure:
    """Of the images with the row's label, the share that also carries the column's."""
    labels = [label.name for label in description.labels]
    together = np.array(description.together, dtype=np.float64)
    shares = together / np.maximum(np.diag(together), 1)[:, None]
    np.fill_diagonal(shares, np.nan)
    side = 2.5 + 0.32 * max(len(labels), 6)
    figure = Figure(figsize=(side + 1, side), layout="constrained", dpi=120)
    axes = figure.add_subplot()
    largest = max(float(np.nanmax(shares, initial=0)), 0.01)
    mesh = axes.imshow(shares, cmap="viridis", vmin=0, vmax=largest)
    size = 9 if len(labels) <= NUMBERED_LABELS else 7
    axes.set_xticks(range(len(labels)), labels, rotation=90, fontsize=size)
    axes.set_yticks(range(len(labels)), labels, fontsize=size)
    axes.set_xlabel("... that also carries")
    axes.set_ylabel("share of the images with ...")
    axes.set_title(f"{description.name}: labels together")
    if len(labels) <= NUMBERED_LABELS:
        for (row, column), share in np.ndenumerate(shares):
            if row != column:
                colour = "black" if share > 0.6 * largest else "white"
                text = f"{share:.2f}".lstrip("0")
                axes.text(column, row, text, ha="center", va="center", fontsize=6, color=colour)
    figure.colorbar(mesh, ax=axes, shrink=0.8)
    return figure
