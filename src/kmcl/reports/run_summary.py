"""What `kmcl train` ends with: mAP, the best and worst labels, decisions, and the commands that come next."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kmcl.evaluation.guarantee import Guarantee

SHOWN_LABELS = 5
NEXT = {
    "report": "all figures as a page",
    "predict": "labels of new images",
    "serve": "page and service",
    "evaluate": "metrics; other data",
}


def print_run_summary(console: Console, folder: Path, metrics: Mapping[str, Any]) -> None:
    """Print the metrics of a finished run, of test or where there is none of val, in 80 columns."""
    split = next((name for name in ("test", "val") if metrics.get(name)), None)
    if split is None:
        console.print("There is neither a test nor a val split to measure on.")
    else:
        _print_map(console, metrics, split)
        found = metrics[split]
        _print_labels(console, found["evaluation"]["labels"])
        _print_decisions(console, found)
        _print_guarantee(console, metrics, split)
    console.print(f"\nrun folder: {folder}", soft_wrap=True, highlight=False, markup=False)
    for command, what in NEXT.items():
        images = " IMAGES" if command == "predict" else ""
        line = f"  {what:<21}  kmcl {command} {shlex.quote(str(folder))}{images}"
        console.print(line, soft_wrap=True, highlight=False, markup=False)


def _print_map(console: Console, metrics: Mapping[str, Any], split: str) -> None:
    found = metrics[split]
    interval, evaluation = found["map_interval"], found["evaluation"]
    words = (
        f"{split}, {evaluation['num_images']} images: mAP {_percent(interval['estimate'])} % "
        f"(95 % interval {_percent(interval['low'])} to {_percent(interval['high'])})"
    )
    of_val = metrics["val"]["evaluation"]["mean_average_precision"] if metrics.get("val") else None
    if split == "test" and of_val is not None:
        words += f"; val mAP {_percent(of_val)} %"
    console.print(f"\n{words}", highlight=False)
    without = evaluation["labels_without_positives"]
    if without:
        console.print(f"left out of means, without positives: {', '.join(without)}", highlight=False)


def _print_labels(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """The labels by average precision: the first and the last five, or all where there are no more."""
    defined = [row for row in rows if row["average_precision"] is not None]
    ranked = sorted(defined, key=lambda row: -row["average_precision"])
    few = len(ranked) <= 2 * SHOWN_LABELS
    best = ranked[: (len(ranked) + 1) // 2] if few else ranked[:SHOWN_LABELS]
    worst = ranked[len(best) :] if few else ranked[-SHOWN_LABELS:]
    table = Table(title=None, box=None, padding=(0, 1))
    for heading in ("best labels", "worst labels"):
        table.add_column(heading, overflow="ellipsis", no_wrap=True, max_width=22)
        table.add_column("AP %", justify="right")
        table.add_column("images", justify="right")
    for place in range(max(len(best), len(worst))):
        cells: list[str] = []
        for side in (best, worst):
            row = side[place] if place < len(side) else None
            cells += (
                ["", "", ""]
                if row is None
                else [row["label"], _percent(row["average_precision"]), str(row["num_positives"])]
            )
        table.add_row(*cells)
    console.print(table)


def _print_decisions(console: Console, found: Mapping[str, Any]) -> None:
    own = found["evaluation_own_thresholds"]
    at = (own or found["evaluation"])["at_threshold"]
    where = "each label's own threshold" if own else f"a score of {found['evaluation']['threshold']:g}"
    table = Table(f"decisions at {where}, in %", box=None, padding=(0, 1))
    for column in ("precision", "recall", "F1"):
        table.add_column(column, justify="right")
    for title, names in (
        ("mean over the labels (CP, CR, CF1)", ("CP", "CR", "CF1")),
        ("over all decisions (OP, OR, OF1)", ("OP", "OR", "OF1")),
    ):
        table.add_row(title, *(_percent(at[name]) for name in names))
    console.print()
    console.print(table)


def _print_guarantee(console: Console, metrics: Mapping[str, Any], split: str) -> None:
    found = metrics.get("guarantee")
    if found is None:
        return
    guarantee = Guarantee.from_json(found)
    labels = tuple(row["label"] for row in metrics[split]["evaluation"]["labels"])
    words = guarantee.in_words(labels)
    achieved = metrics[split]["promised_rates"]
    if achieved["rate"] is not None:
        words += f" On {split}: {_percent(achieved['rate'])} %."
    console.print(f"\n{words}", highlight=False, soft_wrap=True, markup=False)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
