"""A label-by-label matrix as a figure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from matplotlib import colormaps
from matplotlib.colors import Normalize

from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Picture, Table
from kmcl.reports.drawing import FULL_WIDTH, HALF_WIDTH, new_axes, shorten

MOST_WITH_NUMBERS = 12
MOST_HALF_WIDE = 30
TINY = 1e-3
"""If most values are below this, their logarithms are drawn: a linear scale would show one colour."""

MOST_TABULATED = 40
"""Labels up to which the numbers are a square table; beyond, a list of pairs."""


def matrix_picture(
    name: str,
    matrix: Values,
    labels: tuple[str, ...],
    order: npt.NDArray[np.int64],
    *,
    title: str,
    caption: str,
    value: str,
    colours: str,
    limits: tuple[float, float] | None,
) -> Picture:
    """Draw a symmetric matrix with its labels in `order`, the diagonal left blank.

    limits: of the colours; by default those of the values.
    """
    wide = len(labels) > MOST_HALF_WIDE
    shown = matrix[np.ix_(order, order)].copy()
    np.fill_diagonal(shown, np.nan)
    defined = shown[np.isfinite(shown)]
    logarithmic = limits is None and len(defined) > 0 and float(np.median(defined)) < TINY
    if logarithmic:
        shown = np.log10(np.maximum(shown, 1e-300))
        defined = shown[np.isfinite(shown)]
    low, high = limits or (float(defined.min(initial=1)), float(defined.max(initial=0)))
    if low >= high:
        low, high = low - 0.05, low + 0.05
    side = FULL_WIDTH if wide else HALF_WIDTH
    figure, axes = new_axes(side, 0.92 * side)
    drawn = axes.imshow(shown, cmap=colours, vmin=low, vmax=high)
    size = 8 if len(labels) <= 20 else 6.5 if not wide else max(3.5, 440 / len(labels))
    names = [shorten(labels, 18)[label] for label in order]
    axes.set_xticks(range(len(labels)), names, rotation=90, fontsize=size)
    axes.set_yticks(range(len(labels)), names, fontsize=size)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.set_title(title)
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8, pad=0.02)
    bar.set_label(f"log10 of {value}" if logarithmic else value, fontsize=8.5)
    bar.outline.set_visible(False)
    if len(labels) <= MOST_WITH_NUMBERS:
        _write_numbers(axes, shown, colours, low, high)
    rows, columns = np.triu_indices(len(labels), k=1)
    values = matrix[rows, columns]
    ranked = np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")
    highest = ", ".join(f"{labels[rows[p]]} and {labels[columns[p]]} {values[p]:.3g}" for p in ranked[:3])
    return Picture(
        name,
        figure,
        alt=f"{title}, {len(labels)} x {len(labels)} labels. Highest: {highest}.",
        caption=f"{caption} Highest: {highest}.",
        numbers=_numbers(matrix, labels, order, value),
        wide=wide,
    )


def _write_numbers(axes: object, shown: Values, colours: str, low: float, high: float) -> None:
    palette, scale = colormaps[colours], Normalize(low, high)
    for (row, column), number in np.ndenumerate(shown):
        if np.isfinite(number):
            red, green, blue, _ = palette(scale(number))
            is_light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
            text = f"{number:.2f}".replace("0.", ".", 1)
            axes.text(  # type: ignore[attr-defined]
                column,
                row,
                text,
                ha="center",
                va="center",
                fontsize=6,
                color="#000000" if is_light else "#fefefe",
            )


def _numbers(matrix: Values, labels: tuple[str, ...], order: npt.NDArray[np.int64], value: str) -> Table:
    if len(labels) <= MOST_TABULATED:
        rows = [(labels[row], *(float(matrix[row, column]) for column in order)) for row in order]
        return Table.of(value, ("label", *(labels[column] for column in order)), rows)
    firsts, seconds = np.triu_indices(len(labels), k=1)
    ranked = np.argsort(-np.nan_to_num(matrix[firsts, seconds], nan=-np.inf), kind="stable")
    pairs = [
        (f"{labels[firsts[p]]} – {labels[seconds[p]]}", float(matrix[firsts[p], seconds[p]])) for p in ranked
    ]
    return Table.of(value, ("pair", value), pairs)
