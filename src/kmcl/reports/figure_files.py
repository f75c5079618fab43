"""Figures as files: SVG, PNG and the numbers as CSV, and the copy that goes into a page."""

from __future__ import annotations

import base64
import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG

from kmcl.errors import InputError
from kmcl.reports.blocks import Picture, Table
from kmcl.reports.drawing import COLOURS, GRID, INK, PAPER, figure_style

PNG_DPI = 160

# Inside an <img>, a figure knows whether the page is light or dark but not the page's CSS variables.
THEME = (
    "<style>:root{--ink:#1f2328;--paper:#ffffff;--grid:#d8dee4;--first:#0072b2}"
    "@media (prefers-color-scheme:dark){:root{--ink:#dfe3e8;--paper:#171b21;--grid:#353c45;--first:#4aa3df}}"
    "</style>"
)


def write_picture(picture: Picture, folder: Path) -> str:
    """Write `name.svg`, `name.png` and `name.csv`; returns the SVG for a page, following light and dark."""
    vector = io.StringIO()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with figure_style():
            _draw(picture, vector, folder / f"{picture.name}.png")
        (folder / f"{picture.name}.svg").write_text(vector.getvalue(), encoding="utf-8")
        with (folder / f"{picture.name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(picture.numbers.header)
            writer.writerows(picture.numbers.rows)
    except OSError as error:
        raise InputError(
            f"{folder}: the figure {picture.name} cannot be written: {error.strerror}"
        ) from error
    return theme_svg(vector.getvalue())


@dataclass(frozen=True)
class Drawn:
    """The files of a figure, and its numbers."""

    files: tuple[Path, ...]
    numbers: Table


def draw_to_folder(picture: Picture, folder: Path) -> Drawn:
    """Write a figure, as `write_picture` does."""
    write_picture(picture, folder)
    files = tuple(folder / f"{picture.name}.{ending}" for ending in ("svg", "png", "csv"))
    return Drawn(files, picture.numbers)


def _draw(picture: Picture, vector: TextIO, pixels: Path) -> None:
    """Laid out once for both files, and drawn once for each; `savefig` would draw each of them twice.

    Layout takes as long as drawing. It is made for the resolution of the PNG file, since text is wider or
    narrower at another one.
    """
    figure = picture.figure
    figure.set_dpi(PNG_DPI)
    layout = figure.get_layout_engine()
    if layout is not None:
        layout.execute(figure)
    figure.set_layout_engine("none")
    described = {"Title": picture.alt}
    FigureCanvasSVG(figure).print_svg(vector, metadata={"Date": None, **described})  # type: ignore[no-untyped-call]
    figure.set_dpi(PNG_DPI)  # an SVG file has its own
    FigureCanvasAgg(figure).print_png(pixels, metadata=described)  # type: ignore[no-untyped-call]


def theme_svg(svg: str) -> str:
    """Replace the colours that do not suit both backgrounds by variables that follow light and dark mode."""
    start = svg.index("<svg")
    end = svg.index(">", start) + 1
    body = svg[end:]
    for colour, variable in ((INK, "ink"), (PAPER, "paper"), (GRID, "grid"), (COLOURS[0], "first")):
        body = body.replace(f": {colour}", f": var(--{variable})")
    return svg[start:end] + THEME + body


def data_uri(content: bytes, kind: str) -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
