"""The figure of the packages' imports: boxes in rows, arrows that all point down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import mean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.path import Path

from building.package_graph import Imports, PackageGraph, read_graph
from kmcl.reports.drawing import COLOURS, GRID, INK, new_figure

WIDTH, HEIGHT = 1.5, 0.5
"""Of a box, in inches as all lengths here."""
GAP_ACROSS, GAP_DOWN, MARGIN = 0.5, 0.45, 0.1
SWEEPS = 24

Bend = tuple[str, str, int]
"""A place that an arrow passes on its way through a row: from, to, row."""
Node = str | Bend


def describe_edges(graph: PackageGraph) -> str:
    """All imports as text; kept in the figure's file, by which a test knows whether it is up to date."""
    return "; ".join(f"{name} -> {other}" for name, other in graph.edges)


def draw_imports() -> Figure:
    graph = read_graph()
    links = graph.reduced()
    rows = arrange(links)
    across = place(rows, links)
    left, right = min(across.values()) - WIDTH / 2, max(across.values()) + WIDTH / 2
    bottom = -len(rows) * (HEIGHT + GAP_DOWN)
    figure = new_figure(right - left + 2 * MARGIN, HEIGHT - bottom + 2 * MARGIN)
    axes = figure.add_subplot()
    axes.set(xlim=(left - MARGIN, right + MARGIN), ylim=(bottom - HEIGHT / 2 - MARGIN, HEIGHT / 2 + MARGIN))
    axes.axis("off")
    heights = {node: -row * (HEIGHT + GAP_DOWN) for row, nodes in enumerate(rows) for node in nodes}
    for name, others in links.items():
        for other in others:
            through = chain(name, other, rows)
            _arrow(axes, [(across[node], heights[node]) for node in through])
    for name in links:
        _box(axes, across[name], heights[name], WIDTH, name)
    text = "for all: " + ", ".join(graph.basics)
    _box(axes, (left + right) / 2, bottom, right - left, text, GRID)
    return figure


def arrange(links: Imports) -> list[list[Node]]:
    """Rows of nodes, each below all that import it, in an order with few crossings."""
    row_of = {name: _row(name, links) for name in links}
    rows: list[list[Node]] = [[] for _ in range(max(row_of.values()) + 1)]
    for name in sorted(links):
        rows[row_of[name]].append(name)
        for other in sorted(links[name]):
            for row in range(row_of[name] + 1, row_of[other]):
                rows[row].append((name, other, row))
    neighbours = _neighbours(rows, links)
    for sweep in range(SWEEPS):
        downwards = sweep % 2 == 0
        for row in range(len(rows)) if downwards else reversed(range(len(rows))):
            beside = row - 1 if downwards else row + 1
            if not 0 <= beside < len(rows):
                continue
            position = {node: index for index, node in enumerate(rows[beside])}
            order = {node: index for index, node in enumerate(rows[row])}
            rows[row].sort(
                key=lambda node: mean(
                    [position[n] for n in neighbours[node] if n in position] or [order[node]]
                )
            )
    return rows


def place(rows: Sequence[Sequence[Node]], links: Imports) -> dict[Node, float]:
    """Horizontal position of each node: near its neighbours, in the order of its row."""
    neighbours = dict(_neighbours(rows, links))
    for node, beside in neighbours.items():
        if isinstance(node, tuple):  # a long arrow is straight between its ends
            neighbours[node] = [other for other in beside if isinstance(other, tuple)] or beside
    across: dict[Node, float] = {}
    for nodes in rows:
        for index, node in enumerate(nodes):
            across[node] = (index - (len(nodes) - 1) / 2) * (WIDTH + GAP_ACROSS)
    for sweep in range(SWEEPS):
        for nodes in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [mean([across[n] for n in neighbours[node]] or [across[node]]) for node in nodes]
            across |= zip(nodes, _spread(wanted, nodes), strict=True)
    return across


def chain(name: str, other: str, rows: Sequence[Sequence[Node]]) -> list[Node]:
    """An arrow's nodes: its start, its bends from the top down, its end."""
    bends = [
        node for nodes in rows for node in nodes if isinstance(node, tuple) and node[:2] == (name, other)
    ]
    return [name, *bends, other]


def _row(name: str, links: Imports) -> int:
    importers = [other for other, others in links.items() if name in others]
    return 1 + max((_row(other, links) for other in importers), default=-1)


def _neighbours(rows: Sequence[Sequence[Node]], links: Imports) -> Mapping[Node, list[Node]]:
    found: dict[Node, list[Node]] = {node: [] for nodes in rows for node in nodes}
    for name in sorted(links):
        for other in sorted(links[name]):
            nodes = chain(name, other, rows)
            for upper, lower in pairwise(nodes):
                found[upper].append(lower)
                found[lower].append(upper)
    return found


def _spread(wanted: Sequence[float], nodes: Sequence[Node]) -> list[float]:
    """The wanted places, moved apart as far as the boxes need: the mean of both ways to do so."""
    gaps = [GAP_ACROSS + (_half(a) + _half(b)) for a, b in pairwise(nodes)]
    right, left = list(wanted), list(wanted)
    for index, gap in enumerate(gaps):
        right[index + 1] = max(right[index + 1], right[index] + gap)
    for index in reversed(range(len(gaps))):
        left[index] = min(left[index], left[index + 1] - gaps[index])
    return [(a + b) / 2 for a, b in zip(right, left, strict=True)]


def _half(node: Node) -> float:
    return WIDTH / 2 if isinstance(node, str) else 0.0


def _box(axes: Axes, x: float, y: float, width: float, text: str, colour: str = COLOURS[0]) -> None:
    corner = (x - width / 2, y - HEIGHT / 2)
    style = "round,pad=0,rounding_size=0.08"
    shape = FancyBboxPatch(
        corner, width, HEIGHT, boxstyle=style, facecolor="white", edgecolor=colour, linewidth=1.6
    )
    axes.add_patch(shape)
    axes.text(x, y, text, ha="center", va="center", fontsize=11, color=INK)


def _arrow(axes: Axes, points: Sequence[tuple[float, float]]) -> None:
    """A curve through the points that leaves and enters boxes vertically."""
    (x, y), *rest = points
    vertices, codes = [(x, y - HEIGHT / 2)], [Path.MOVETO]
    for index, (x, y) in enumerate(rest):
        last = index == len(rest) - 1
        (above_x, above_y), end = vertices[-1], y + HEIGHT / 2
        middle = (above_y + end) / 2
        vertices += [(above_x, middle), (x, middle), (x, end)]
        codes += [Path.CURVE4] * 3
        if not last:
            vertices.append((x, y - HEIGHT / 2))
            codes.append(Path.LINETO)
    axes.add_patch(
        FancyArrowPatch(
            path=Path(vertices, codes), arrowstyle="-|>", mutation_scale=12, color=INK, linewidth=1
        )
    )
