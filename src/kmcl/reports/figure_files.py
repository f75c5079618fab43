"""Figures as files: SVG, PNG and the numbers as CSV, and the copy that goes into a page."""

from __future__ import annotations

import base64
import csv
import io
from pathlib import Path

from kmcl.errors import InputError
from kmcl.reports.blocks import Picture
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
            # Laid out once for both files: layout takes as long as drawing. Text is wider or narrower at
            # another resolution.
            picture.figure.set_dpi(PNG_DPI)
            picture.figure.draw_without_rendering()
            picture.figure.set_layout_engine("none")
            picture.figure.savefig(
                vector, format="svg", dpi=PNG_DPI, metadata={"Date": None, "Title": picture.alt}
            )
            picture.figure.savefig(
                folder / f"{picture.name}.png", dpi=PNG_DPI, metadata={"Title": picture.alt}
            )
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
