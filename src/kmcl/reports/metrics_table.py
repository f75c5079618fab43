"""Metrics as readable tables: percentages, a column per run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table


def print_metrics(console: Console, runs: Mapping[str, Mapping[str, Any]], split: str = "test") -> None:
    """One column per run: the figures of a split of `metrics.json`."""
    found = {name: metrics.get(split) for name, metrics in runs.items()}
    if not any(found.values()):
        console.print(f"no {split} split to report")
        return
    first = next(values for values in found.values() if values)
    threshold = first["evaluation"]["threshold"]
    table = Table(title=f"{split}: {first['evaluation']['num_images']} images, in %")
    table.add_column("")
    for name in runs:
        table.add_column(name, justify="right", overflow="fold")
    for title, path in _rows(threshold, first["evaluation"]["k"]):
        table.add_row(title, *(_cell(values, path) for values in found.values()))
    console.print(table)
    for name, values in found.items():
        missing = values and values["evaluation"]["labels_without_positives"]
        if missing:
            console.print(f"{name}: labels without positives, left out of means: {', '.join(missing)}")


def _rows(threshold: float, k: int) -> list[tuple[str, str]]:
    rows = [
        ("mAP", "evaluation.mean_average_precision"),
        ("  95 % interval", "map_interval"),
        ("mean AUC", "evaluation.mean_auc"),
    ]
    for title, place in (
        (f"at threshold {threshold:g}", "evaluation.at_threshold"),
        ("at own thresholds", "evaluation_own_thresholds.at_threshold"),
        (f"of the top {k}", "evaluation.top_k"),
    ):
        rows += [(f"{name} {title}", f"{place}.{name}") for name in ("CP", "CR", "CF1", "OP", "OR", "OF1")]
    rows += [
        ("calibration error, raw", "calibration_raw.mean_label_error"),
        ("  with a temperature", "calibration_temperature.mean_label_error"),
        ("  and a bias", "calibration_temperature_and_bias.mean_label_error"),
    ]
    return rows


def _cell(values: Any, path: str) -> str:
    if path == "map_interval":
        interval = values and values[path]
        return f"{100 * interval['low']:.2f} to {100 * interval['high']:.2f}" if interval else "-"
    for key in path.split("."):
        values = values and values.get(key)
    return "-" if values is None else f"{100 * values:.2f}"
