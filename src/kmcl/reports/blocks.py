"""The building blocks of a report, before HTML: sections of text, tables, figures and pictures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from matplotlib.figure import Figure

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """header: one name per column; if the first is empty, columns are runs and all cells are right-aligned.
    rows: numbers are written with four digits, None and NaN as a dash.

    open: expanded; otherwise collapsed under its heading.
    """

    caption: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    open: bool = True

    @staticmethod
    def of(caption: str, header: Sequence[str], rows: Iterable[Sequence[Cell]], open: bool = True) -> Table:
        return Table(caption, tuple(header), tuple(tuple(row) for row in rows), open)


@dataclass(frozen=True)
class Picture:
    """A figure with its description and numbers.

    name:    of its files, without suffix
    alt:     what it shows, for people who cannot see it
    numbers: what is drawn, as a table
    wide:    takes the whole width of the page
    shown:   included in the page; otherwise only its files are written
    """

    name: str
    figure: Figure
    alt: str
    caption: str
    numbers: Table
    wide: bool = False
    shown: bool = True


@dataclass(frozen=True)
class Thumbnail:
    """A small image with its caption; `jpeg` is None where the image cannot be read."""

    jpeg: bytes | None
    alt: str
    caption: str


@dataclass(frozen=True)
class Gallery:
    """Rows of thumbnails, each with a heading.

    large: show the images at their own size instead of that of a thumbnail
    """

    title: str
    rows: tuple[tuple[str, tuple[Thumbnail, ...]], ...]
    open: bool = True
    large: bool = False


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Heading:
    text: str


@dataclass(frozen=True)
class Missing:
    """Missing content, and the reason."""

    text: str


Block = Table | Picture | Gallery | Text | Heading | Missing


@dataclass
class Section:
    """A part of the page with its own heading, filled block by block."""

    title: str
    blocks: list[Block] = field(default_factory=list)

    def add(self, *blocks: Block) -> None:
        self.blocks += blocks

    @property
    def anchor(self) -> str:
        return self.title.lower().replace(" ", "-")


def format_cell(value: Cell, digits: int = 4) -> str:
    """A cell as text: four significant digits, a dash for what is undefined."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    return f"{value:.{digits}g}" if isinstance(value, float) else str(value)


def percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None or math.isnan(value) else f"{100 * value:.{digits}f}"


def slug(name: str) -> str:
    """A name as part of a file's name."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name)
