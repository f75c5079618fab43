"""What the peers reached: results.json, its Markdown table and its figure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kmcl.reports.drawing import figure_style, legend_below, line_look, new_axes
from kmcl.storage.atomic import write_json

FILE_NAME = "results.json"


@dataclass(frozen=True)
class Point:
    """Test mAP (0 to 1) after so many seconds, scoring of test not counted."""

    seconds: float
    map: float


@dataclass(frozen=True)
class PeerResult:
    """One finished run; `low` and `high` bound the last point's mAP with 95 % confidence."""

    name: str
    peer: str
    version: str
    settings: str
    command: str
    points: list[Point]
    low: float
    high: float
    process_seconds: float
    peak_bytes: int
    peak_rss: int

    @property
    def last(self) -> Point:
        return self.points[-1]


@dataclass
class Results:
    """All runs on one dataset, image size and seed, in the order in which they finished."""

    data: str
    image_size: int
    seed: int
    machine: str = ""
    runs: dict[str, PeerResult] = field(default_factory=dict)

    def save(self, folder: Path) -> None:
        write_json(folder / FILE_NAME, asdict(self))


def load_results(folder: Path) -> Results:
    values = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
    runs = {
        name: PeerResult(**{**run, "points": [Point(**point) for point in run["points"]]})
        for name, run in values.pop("runs").items()
    }
    return Results(**values, runs=runs)


def markdown_table(results: Results) -> str:
    """One row for each run, those of one peer together, from the fastest to the slowest."""
    lines = [
        "| | version | settings | test mAP | wall time | memory |",
        "|---|---|---|---|---|---|",
    ]
    for result in in_order(results):
        interval = f"{100 * result.last.map:.1f} ({100 * result.low:.1f} to {100 * result.high:.1f})"
        memory = f"{result.peak_bytes / 2**30:.1f} GB"
        lines.append(
            f"| {result.name} | {result.version} | {result.settings} | {interval} "
            f"| {result.last.seconds:.0f} s | {memory} |"
        )
    return "\n".join(lines)


def in_order(results: Results) -> list[PeerResult]:
    peers = list(dict.fromkeys(result.peer for result in results.runs.values()))
    return sorted(results.runs.values(), key=lambda run: (peers.index(run.peer), run.last.seconds))


def curves(results: Results) -> dict[str, list[Point]]:
    """Points by the name of their line.

    Points of one run are joined: it is one training looked at after every epoch. Runs of kmcl are joined
    too, each a training of its own with another budget.
    """
    lines: dict[str, list[Point]] = {}
    for result in in_order(results):
        is_ours = result.peer.startswith("kmcl")
        lines.setdefault(result.peer if is_ours else result.name, []).extend(
            result.points[-1:] if is_ours else result.points
        )
    return lines


def draw(results: Results, path: Path) -> None:
    """Test mAP over wall time, the time on a logarithmic axis."""
    with figure_style():
        figure, axes = new_axes(width=6.4, height=4.2)
        for index, (name, points) in enumerate(curves(results).items()):
            axes.plot(
                [point.seconds for point in points],
                [100 * point.map for point in points],
                label=name,
                **line_look(index),
            )
        axes.set_xscale("log")
        ticks = [10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200]
        axes.set_xticks(ticks, [f"{tick} s" if tick < 60 else f"{tick // 60} min" for tick in ticks])
        axes.minorticks_off()
        seconds = [point.seconds for points in curves(results).values() for point in points]
        axes.set_xlim(min(seconds) / 1.3, max(seconds) * 1.3)
        axes.set(xlabel="wall time", ylabel="test mAP, %", title="Test mAP over wall time")
        legend_below(axes)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
