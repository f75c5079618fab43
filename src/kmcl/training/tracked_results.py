"""The results of a run as tracking services show them: single numbers, and a table of the labels."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any


def result_numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The results of each split as `test/mean_average_precision`, `test/at_threshold/CF1` and so on.

    Decisions are those at the thresholds that were chosen on val, where there are any.
    """
    numbers: dict[str, float] = {}
    for split, found in _measured(metrics):
        for name, value in found.items():
            inner = value if isinstance(value, Mapping) else {"": value}
            for key, number in inner.items():
                if isinstance(number, int | float) and not isinstance(number, bool):
                    numbers["/".join(filter(None, (split, name, key)))] = float(number)
    return numbers


def label_tables(metrics: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """For each split a row of metrics per label."""
    return {split: found["labels"] for split, found in _measured(metrics) if found["labels"]}


def _measured(metrics: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        (split, metrics[split].get("evaluation_own_thresholds") or metrics[split]["evaluation"])
        for split in ("val", "test")
        if metrics.get(split)
    ]


def as_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
