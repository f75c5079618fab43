"""Sections as one HTML file: no script, no network, readable on a phone, a desktop and paper."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template

from kmcl.errors import InputError
from kmcl.reports.blocks import (
    Block,
    Gallery,
    Heading,
    Missing,
    Picture,
    Section,
    Table,
    Text,
    Thumbnail,
    format_cell,
)
from kmcl.reports.figure_files import data_uri, write_picture
from kmcl.reports.html_document import html_document
from kmcl.storage.atomic import write_text

SHOWN_ROWS = 400
"""Longer tables are truncated in the page; those of figures are complete in their CSV files."""

FIGURES = "figures"

BODY = Template("""<header><h1>$title</h1><p>$subtitle</p>
<nav aria-label="Sections"><ul>$contents</ul></nav></header>
<main>
$sections
</main>
<footer><p>$footer</p></footer>""")


ABOUT_FIGURES = (
    f"The figures are in the folder {FIGURES} beside this page as SVG and PNG, their numbers as CSV."
)


def write_page(
    folder: Path,
    file_name: str,
    title: str,
    subtitle: str,
    sections: Sequence[Section],
    footer: str = ABOUT_FIGURES,
) -> Path:
    """Write the page and, in `figures` beside it, the files of its figures; returns the page's path."""
    parts = [_section(section, folder / FIGURES) for section in sections]
    contents = "".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in sections)
    body = BODY.substitute(
        title=escape(title),
        subtitle=escape(subtitle),
        contents=contents,
        sections="\n".join(parts),
        footer=escape(footer),
    )
    path = folder / file_name
    try:
        write_text(path, html_document(title, body))
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def _section(section: Section, figures: Path) -> str:
    body = "\n".join(_grouped(section.blocks, figures))
    return f'<section id="{section.anchor}"><h2>{escape(section.title)}</h2>\n{body}\n</section>'


def _grouped(blocks: Iterable[Block], figures: Path) -> Iterable[str]:
    """Consecutive figures form one grid."""
    in_grid = False
    for block in blocks:
        if isinstance(block, Picture) and not block.shown:
            write_picture(block, figures)
            continue
        if isinstance(block, Picture) != in_grid:
            in_grid = not in_grid
            yield '<div class="figures">' if in_grid else "</div>"
        yield _block(block, figures)
    if in_grid:
        yield "</div>"


def _block(block: Block, figures: Path) -> str:
    match block:
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Heading(text):
            return f"<h3>{escape(text)}</h3>"
        case Missing(text):
            return f'<p class="missing" role="note"><strong>Missing:</strong> {escape(text)}</p>'
        case Table():
            return _folding(block.caption, _table(block), block.open)
        case Gallery(title, rows, is_open, is_large):
            return _folding(title, "".join(_gallery_row(*row, is_large) for row in rows), is_open)
        case Picture():
            return _picture(block, figures)


def _picture(picture: Picture, figures: Path) -> str:
    source = data_uri(write_picture(picture, figures).encode(), "image/svg+xml")
    width, height = (round(96 * inches) for inches in picture.figure.get_size_inches())
    numbers = picture.numbers
    size = f'width="{width}" height="{height}"'
    return (
        f'<figure class="{"wide" if picture.wide else "half"}" id="figure-{picture.name}">'
        f'<div class="scroll" tabindex="0"><img src="{source}" alt="{escape(picture.alt)}" {size}></div>'
        f"<figcaption>{escape(picture.caption)}</figcaption>"
        f"{_folding('Numbers: ' + numbers.caption, _table(numbers), False)}</figure>"
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.header)
    rows = []
    for row in table.rows[:SHOWN_ROWS]:
        cells = [f'<th scope="row">{escape(format_cell(row[0]))}</th>'] if row else []
        for cell in row[1:]:
            is_word = isinstance(cell, str) and not _is_numeric(cell) and table.header[0] != ""
            kind = "" if is_word else ' class="number"'
            cells.append(f"<td{kind}>{escape(format_cell(cell))}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    hidden = len(table.rows) - SHOWN_ROWS
    more = f"<p>{hidden} more rows are in the CSV file of the figure.</p>" if hidden > 0 else ""
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>{more}"
    )


def _is_numeric(text: str) -> bool:
    return bool(text) and not any(letter.isalpha() for letter in text.replace(" to ", ""))


def _gallery_row(heading: str, thumbnails: Sequence[Thumbnail], is_large: bool) -> str:
    items = "".join(_thumbnail(thumbnail) for thumbnail in thumbnails) or "<p>none</p>"
    kind = "thumbnails large" if is_large else "thumbnails"
    return f'<div class="strip"><h4>{escape(heading)}</h4><div class="{kind}">{items}</div></div>'


def _thumbnail(thumbnail: Thumbnail) -> str:
    if thumbnail.jpeg is None:
        image = '<span class="unreadable">no image</span>'
    else:
        image = f'<img src="{data_uri(thumbnail.jpeg, "image/jpeg")}" alt="{escape(thumbnail.alt)}">'
    return f"<figure>{image}<figcaption>{escape(thumbnail.caption)}</figcaption></figure>"


def _folding(title: str, body: str, is_open: bool) -> str:
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}</summary>{body}</details>"
