"""Imports between packages point one way, and the figure in the documentation shows them as they are."""

from __future__ import annotations

import re
from html import unescape
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest

from docs.pages import ROOT

FIGURE = ROOT / "docs" / "figures" / "imports.svg"


@pytest.fixture(autouse=True)
def building(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))


@pytest.fixture
def graph() -> Any:
    return import_module("building.package_graph").read_graph()


def graph_of(**imports: str) -> Any:
    """A graph from what each package imports, as words."""
    sets = {name: frozenset(others.split()) for name, others in imports.items()}
    return import_module("building.package_graph").PackageGraph(sets, ())


def test_no_package_imports_itself_through_others(graph: Any):
    assert graph.cycles() == []


def test_every_import_points_to_a_lower_layer(graph: Any):
    layers = import_module("building.package_table").import_layers()
    depth = {name: number for number, names in enumerate(layers) for name in names}
    packages = import_module("building.package_table").package_summaries()
    assert depth.keys() == packages.keys(), "the layers of pyproject.toml list every package and no other"
    wrong = [(name, other) for name, other in graph.edges if depth.get(name, -2) >= depth.get(other, -1)]
    assert wrong == []


def test_nothing_inside_imports_from_the_root():
    """Its public names lead to all packages, so that an import of it leads back to whoever imports it."""
    assert import_module("building.package_graph").importers_of_the_root() == []


def test_modules_beside_the_packages_import_none(graph: Any):
    assert {"errors", "version", "registry"} <= set(graph.basics)


def test_every_package_says_what_it_holds():
    summaries = import_module("building.package_table").package_summaries()
    assert len(summaries) > 10
    for name, text in summaries.items():
        assert text.endswith("."), f"kmcl.{name}: its docstring starts with a sentence"
        assert len(text) <= 140, f"kmcl.{name}: one line of the table"


def test_the_figure_shows_the_imports_of_today(graph: Any):
    shown = re.search(
        r"<dc:description>(.*?)</dc:description>", FIGURE.read_text(encoding="utf-8"), re.DOTALL
    )
    assert shown is not None
    expected = import_module("building.draw_imports").describe_edges(graph)
    assert unescape(shown[1]) == expected, "imports have changed: run `make figures` and commit docs/figures"


def test_arrows_of_the_figure_point_down_and_reach_every_import(graph: Any):
    drawing = import_module("building.draw_imports")
    links = graph.reduced()
    rows = drawing.arrange(links)
    row_of = {node: number for number, nodes in enumerate(rows) for node in nodes}
    assert {node for node in row_of if isinstance(node, str)} == links.keys()
    for name, others in links.items():
        for other in others:
            passed = [row_of[node] for node in drawing.chain(name, other, rows)]
            assert passed == list(range(row_of[name], row_of[other] + 1))
    reduced = import_module("building.package_graph").PackageGraph(links, ())
    for name, other in graph.edges:
        assert other in reduced.reachable(name)


def test_boxes_of_a_row_do_not_overlap(graph: Any):
    drawing = import_module("building.draw_imports")
    links = graph.reduced()
    rows = drawing.arrange(links)
    across = drawing.place(rows, links)
    for nodes in rows:
        boxes = [across[node] for node in nodes if isinstance(node, str)]
        assert all(right - left > drawing.WIDTH for left, right in pairwise(boxes))


def test_a_cycle_is_found_and_a_detour_left_out():
    assert graph_of(a="b", b="c", c="b", d="a").cycles() == ["b", "c"]
    tidy = graph_of(a="b c d", b="c", c="d", d="")
    assert tidy.cycles() == []
    assert tidy.reduced() == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}
