"""Blocks become a page that is safe, complete and follows light and dark."""

from __future__ import annotations

import csv
import math
import re

import pytest
from PIL import Image

from kmcl.errors import InputError
from kmcl.reports.blocks import (
    Gallery,
    Missing,
    Picture,
    Section,
    Table,
    Text,
    Thumbnail,
    format_cell,
    percent,
)
from kmcl.reports.drawing import INK, PAPER, figure_style, new_axes
from kmcl.reports.figure_files import theme_svg, write_picture
from kmcl.reports.page import SHOWN_ROWS, write_page


def picture(shown: bool = True) -> Picture:
    with figure_style():
        figure, axes = new_axes()
        axes.plot([0, 1], [0, 1], color=INK)
        axes.set_title("A <line>")
    numbers = Table.of("points", ("x", "y"), [(0.0, 0.0), (1.0, 1.0)])
    return Picture("line", figure, "A line & more", "A caption", numbers, shown=shown)


def test_a_picture_is_written_as_svg_png_and_numbers(tmp_path):
    write_picture(picture(), tmp_path)
    assert (tmp_path / "line.svg").read_text().startswith("<?xml")
    pixels = Image.open(tmp_path / "line.png").convert("L")
    assert pixels.size == (768, 528)
    assert pixels.getextrema()[0] < 100 < 250 < pixels.getextrema()[1]
    with (tmp_path / "line.csv").open() as file:
        assert list(csv.reader(file)) == [["x", "y"], ["0.0", "0.0"], ["1.0", "1.0"]]


def test_the_same_figure_gives_the_same_file(tmp_path):
    assert write_picture(picture(), tmp_path / "a") == write_picture(picture(), tmp_path / "b")


def test_the_embedded_copy_follows_light_and_dark_and_the_file_does_not(tmp_path):
    embedded = write_picture(picture(), tmp_path)
    assert embedded.startswith("<svg")
    assert "prefers-color-scheme:dark" in embedded
    body = embedded.split("</style>", 1)[1]
    assert f": {INK}" not in body
    assert f": {PAPER}" not in body
    assert "var(--ink)" in body
    assert "var(--" not in (tmp_path / "line.svg").read_text()


def test_theme_leaves_other_colours_alone():
    themed = theme_svg(f'<svg width="1"><path style="fill: #123456; stroke: {INK}"/></svg>')
    assert 'style="fill: #123456; stroke: var(--ink)"' in themed


def test_names_from_outside_cannot_become_markup(tmp_path):
    evil = "<script>alert(1)</script>"
    section = Section(
        "Names",
        [
            Text(evil),
            Missing(evil),
            Table.of(evil, (evil,), [(evil,)]),
            Gallery(evil, ((evil, (Thumbnail(None, evil, evil),)),)),
        ],
    )
    html = write_page(tmp_path, "page.html", evil, evil, [section]).read_text()
    assert "<script" not in html
    assert html.count("&lt;script&gt;") >= 9


def test_the_page_asks_for_nothing_outside_itself(tmp_path):
    html = write_page(tmp_path, "page.html", "T", "S", [Section("One", [picture()])]).read_text()
    sources = re.findall(r'(?:src|href)="([^"]*)"', html)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "default-src 'none'" in html
    assert 'alt="A line &amp; more"' in html


def test_a_picture_that_is_not_shown_still_has_its_files(tmp_path):
    html = write_page(tmp_path, "page.html", "T", "S", [Section("One", [picture(shown=False)])]).read_text()
    assert "<img" not in html
    assert (tmp_path / "figures" / "line.png").is_file()


def test_a_long_table_says_how_much_it_hides(tmp_path):
    table = Table.of("long", ("n",), [(n,) for n in range(SHOWN_ROWS + 7)])
    html = write_page(tmp_path, "page.html", "T", "S", [Section("One", [table])]).read_text()
    assert html.count("<tr>") == SHOWN_ROWS + 1
    assert "7 more rows" in html


def test_cells():
    assert format_cell(None) == format_cell(math.nan) == "–"
    assert format_cell(0.123456) == "0.1235"
    assert format_cell(12) == "12"
    assert percent(0.12345) == "12.3"
    assert percent(math.nan) == "–"


def test_a_folder_that_cannot_be_written_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(InputError, match="cannot be written"):
        write_page(tmp_path / "file", "page.html", "T", "S", [Section("One", [Text("x")])])
