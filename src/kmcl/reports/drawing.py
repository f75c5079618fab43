"""The style of all figures, with one palette that colour-blind people can read.

INK, PAPER and GRID are also placeholders: the copy of a figure that goes into a page has them replaced by
the page's own colours, so that it follows light and dark (`figure_files`).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK, PAPER, GRID = "#1f2328", "#ffffff", "#d8dee4"

# Okabe and Ito's colours, ordered so that neighbours differ in lightness too; yellow is left out because it
# cannot be seen on white.
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#7f7f7f")
LINE_STYLES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")

SEQUENTIAL, DIVERGING = "viridis", "PuOr_r"

HALF_WIDTH, FULL_WIDTH = 4.8, 9.6
"""Inches: two half-wide figures fit side by side on a desktop, one fills a phone."""

STYLE: Any = {
    "figure.facecolor": PAPER,
    "axes.facecolor": "none",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "axes.labelsize": 9.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    "svg.fonttype": "path",  # the same glyphs wherever it is opened
    "svg.hashsalt": "kmcl",  # the same file for the same figure
    "font.family": "DejaVu Sans",
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Draw and save inside this: matplotlib reads its style when axes, legends and files are created."""
    with matplotlib.rc_context(STYLE):
        yield


def new_figure(width: float = HALF_WIDTH, height: float = 3.3) -> Figure:
    return Figure(figsize=(width, height), layout="constrained", facecolor=PAPER)


def new_axes(width: float = HALF_WIDTH, height: float = 3.3) -> tuple[Figure, Axes]:
    figure = new_figure(width, height)
    return figure, figure.add_subplot()


def line_look(index: int) -> dict[str, Any]:
    """Colour, line style and marker of the index-th line: distinguishable without colour too."""
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINE_STYLES[index % len(LINE_STYLES)],
        "marker": MARKERS[index % len(MARKERS)],
    }


def dot_look(index: int) -> dict[str, Any]:
    """Colour and marker of the index-th set of points."""
    return {"color": COLOURS[index % len(COLOURS)], "marker": MARKERS[index % len(MARKERS)]}


def whole_number_ticks(axes: Axes) -> None:
    """Ticks of a horizontal axis that counts something."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def legend_below(axes: Axes, columns: int = 3) -> None:
    """A legend outside the axes."""
    handles, names = axes.get_legend_handles_labels()
    if handles:
        shown = [textwrap.shorten(str(name), 34, placeholder="...") for name in names]
        figure = axes.get_figure()
        if figure is not None:
            figure.legend(handles, shown, loc="outside lower center", ncols=min(columns, len(handles)))


def shorten(names: Sequence[str], length: int = 24) -> list[str]:
    """Names shortened to fit beside an axis; the table under the figure has them in full."""
    return [name if len(name) <= length else name[: length - 1] + "…" for name in names]
