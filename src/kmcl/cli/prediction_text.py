"""Predictions as text: CSV with a row per label or per image, JSON lines, a table for people."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from kmcl.serving import ImagePrediction, LabelPrediction
    from kmcl.serving.predictions import Columns

WriteLines = Callable[[TextIO, Iterable["ImagePrediction"], "Columns"], None]
"""Writes the wanted columns of predictions as text; without any, what comes before the first of them."""


def write_json_lines(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    of_labels = columns.of_labels
    for prediction in predictions:
        labels = [{name: getattr(label, name) for name in of_labels} for label in prediction.labels]
        of_image = dict(zip(columns.of_images, columns.values_of(prediction), strict=True))
        file.write(json.dumps({"image": prediction.name, **of_image, "labels": labels}) + "\n")


def write_csv(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    """One row per image and label; an unreadable image has one row, in which only its name and error are."""
    writer = csv.writer(file, lineterminator="\n")
    of_labels = columns.of_labels
    writer.writerow(["image", *of_labels, *columns.of_images])
    for prediction in predictions:
        of_image = [_csv_cell(value) for value in columns.values_of(prediction)]
        for label in prediction.labels:
            cells = [_csv_cell(getattr(label, name)) for name in of_labels]
            writer.writerow([prediction.name, *cells, *of_image])
        if prediction.error is not None and columns.error:
            writer.writerow([prediction.name, *("" for _ in of_labels), *of_image])


def write_wide_csv(
    file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns, labels: Sequence[str]
) -> None:
    """One row per image: its name, the probability of each label, and the wanted columns of images."""
    from kmcl.serving.predictions import wide_columns

    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(wide_columns("image", labels, columns.of_images))
    for prediction in predictions:
        numbers: list[float | None] = [label.probability for label in prediction.labels]
        cells = map(_csv_cell, numbers or [None] * len(labels))
        of_image = [_csv_cell(value) for value in columns.values_of(prediction)]
        writer.writerow([prediction.name, *cells, *of_image])


def _csv_cell(value: str | float | None) -> str | int:
    """1 and 0 for a decision; six digits of a number, which is what probabilities are rounded to."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str) else f"{value:.6g}"


def write_table(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    """One line per image: its present labels with probability and interval, and what to be careful about."""
    from rich.console import Console
    from rich.table import Table

    table = Table("image", f"labels: probability (90 % interval){', sigma' if columns.sigma else ''}")
    if columns.unsure:
        table.add_column("left to a person, present or not")
    if columns.unfamiliarity:
        table.add_column("unfamiliarity", justify="right")
    for prediction in predictions:
        if prediction.error is not None:
            continue
        labels = [_in_words(label, columns.sigma) for label in prediction.present]
        cells = [prediction.name, "; ".join(labels) or "none"]
        if columns.unsure:
            cells.append(", ".join(label.label for label in prediction.labels if label.unsure) or "none")
        if prediction.unfamiliarity is not None:
            mark = "unlike the training images: " if prediction.is_unfamiliar else ""
            cells.append(f"{mark}{prediction.unfamiliarity:.3f}")
        table.add_row(*cells)
    # In a pipe or file, names are not truncated to the width of a terminal.
    Console(file=file, width=None if file.isatty() else 1000).print(table)


def _in_words(label: LabelPrediction, sigma: bool) -> str:
    words = f"{label.label} {100 * label.probability:.0f} %"
    if label.low is not None and label.high is not None:
        words += f" ({100 * label.low:.0f}–{100 * label.high:.0f})"
    return f"{words}, σ {label.sigma:.3f}" if sigma and label.sigma is not None else words
