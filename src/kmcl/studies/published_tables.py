"""The paper's tables, and finished runs as rows among them.

Figures of other methods are those the paper quotes: with their own encoders, image sizes and recipes.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import yaml

from kmcl.errors import InputError
from kmcl.evaluation.figures import Figure
from kmcl.evaluation.metrics import evaluate as evaluate_predictions
from kmcl.evaluation.predictions import Predictions
from kmcl.runs.folder import RunFolder
from kmcl.runs.resolution import flat_values
from kmcl.runs.settings import TrainingSettings
from kmcl.studies.results import pipe_table

KNOWN_EVERYWHERE = (
    "Published epochs: the authors' code chooses the best on test; here val does, which is cut from the "
    "training images where the data have none."
)
PLACES = {
    "mAP": "mean_average_precision",
    **{name: f"at_threshold.{name}" for name in ("CP", "CR", "CF1", "OP", "OR", "OF1")},
}
"""Path of a column's figure in an evaluation."""

ABLATION_ROWS = {
    "anisotropic": ("Bhattacharyya", "Anisotropic"),
    "isotropic": ("Bhattacharyya", "Isotropic"),
    "mahalanobis": ("Mahalanobis", ""),
    "gaussian": ("Gaussian Kernel", ""),
}
"""The row of the paper's ablation table that each kernel has."""

COLUMNS_OF_DATA = {" (ADP)": "adp", " (PascalVOC)": "voc2007"}
"""Suffixes of columns of the ablation table, and the datasets their figures are of."""


@dataclass(frozen=True)
class PublishedTable:
    """A table as printed, with what is known of how it was made.

    labels_from: the first column that belongs to a label; those of the other labels follow, in the order of
                 the reader's labels. measure: which of a label's metrics these columns hold.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    test_images: int | None
    labels_from: str | None
    measure: str | None


class OwnRow(NamedTuple):
    """A finished run, or several that differ in the seed only.

    evaluations: the `evaluation` of the measured split in each run's metrics.json.
    """

    name: str
    settings: TrainingSettings
    evaluations: Sequence[Mapping[str, Any]]
    parameters: int | None = None
    gmac: float | None = None


@cache
def published_tables() -> dict[str, PublishedTable]:
    """All of them: voc2007, coco2014, chestxray14, adp and ablation."""
    folder = files("kmcl.studies") / "published"
    described = yaml.safe_load((folder / "tables.yaml").read_text(encoding="utf-8"))
    tables = {}
    for name, made in described.items():
        header, *rows = csv.reader(io.StringIO((folder / f"{name}.csv").read_text(encoding="utf-8")))
        tables[name] = PublishedTable(
            name=name,
            title=made["title"],
            header=tuple(header),
            rows=tuple(tuple(row) for row in rows),
            notes=tuple(made["notes"]),
            test_images=made.get("test_images"),
            labels_from=made.get("labels_from"),
            measure=made.get("measure"),
        )
    return tables


def published_table(data: str, *, of_kernels: bool = False) -> PublishedTable | None:
    """The table of a dataset spec's dataset, if the paper has one; or the ablation of the kernels on it."""
    kind = _kind(data)
    if of_kernels:
        return published_tables()["ablation"] if kind in COLUMNS_OF_DATA.values() else None
    return published_tables().get(kind) if kind != "ablation" else None


def _kind(data: str) -> str:
    return data.partition(":")[0].strip()


def among_published(table: PublishedTable, rows: Sequence[OwnRow], split: str = "test") -> str:
    """The published rows with ours after them, in Markdown, and what differs between them."""
    published = [[cell or "-" for cell in row] for row in table.rows]
    own = [[_own_cell(table, column, row) for column in table.header] for row in rows]
    title = f"{table.title}: the paper's figures, and ours in bold"
    notes = [f"- {note}" for note in (*table.notes, KNOWN_EVERYWHERE)]
    notes += [f"- {line}" for row in rows for line in _what_is_ours(table, row, split)]
    return "\n\n".join([title, pipe_table(table.header, published + own), "\n".join(notes)])


def runs_among_published(runs: Sequence[Path], split: str, threshold: float | None) -> str:
    """Runs of one dataset as rows of the paper's table, as text; with a threshold they are measured again."""
    rows = []
    for path in runs:
        run = RunFolder(path)
        settings, measured = run.read_settings(), run.read_metrics().get(split)
        if not measured:
            raise InputError(f"{path}: the run has no metrics of {split}")
        evaluation = measured["evaluation"]
        if threshold is not None:
            predictions = Predictions.load(run.predictions_file(split))
            evaluation = evaluate_predictions(predictions, threshold).to_json()
        rows.append(OwnRow(path.name, settings, [evaluation]))
    table = published_table(rows[0].settings.data.spec)
    if table is None:
        known = ", ".join(name for name in published_tables() if name != "ablation")
        raise InputError(f"--published: the paper has figures of {known}; got {rows[0].settings.data.spec!r}")
    others = [row.settings.data.spec for row in rows if published_table(row.settings.data.spec) != table]
    if others:
        raise InputError(
            f"--published: the runs are of different data: {rows[0].settings.data.spec}, {others[0]}"
        )
    return among_published(table, rows, split)


def _similarity(settings: TrainingSettings) -> str:
    found = ABLATION_ROWS.get(flat_values(settings).get("kernel", ""))
    return found[0] if found else "none"


def _own_cell(table: PublishedTable, column: str, row: OwnRow) -> str:
    for ending, kind in COLUMNS_OF_DATA.items():
        if column.endswith(ending):
            if kind != _kind(row.settings.data.spec):
                return "-"
            column = column.removesuffix(ending)
    described = {
        "method": f"**{row.name}**",
        "similarity": f"**{_similarity(row.settings)}**",
        "case": f"**{row.name}**",
        "encoder": row.settings.encoder.name,
        "resolution": str(row.settings.encoder.image_size or "-"),
        "threshold": f"{row.evaluations[0]['threshold']:g}",
        "Parameters (MM)": "-" if row.parameters is None else f"{row.parameters / 1e6:.2f}",
        "Params(MM)": "-" if row.parameters is None else f"{row.parameters / 1e6:.2f}",
        "GMAC": "-" if row.gmac is None else f"{row.gmac:.2f}",
    }
    if column in described:
        return described[column]
    name = column.removesuffix(" all")
    if name in PLACES:
        return _percent([Figure(name, PLACES[name]).of(found) for found in row.evaluations])
    if column.endswith(" top 3"):
        return _percent(
            [Figure(name, f"top_k_at_threshold.{column[:-6]}").of(found) for found in row.evaluations]
        )
    place = table.header.index(column) - table.header.index(table.labels_from or column)
    labels = [found["labels"] for found in row.evaluations]
    return _percent([Figure(name, table.measure or "").of(own[place]) for own in labels if place < len(own)])


def _what_is_ours(table: PublishedTable, row: OwnRow, split: str) -> list[str]:
    """How a row of ours was made, next to what the table's notes say of the published ones."""
    settings, evaluation = row.settings, row.evaluations[0]
    encoder, epochs = settings.encoder, settings.optimisation.epochs
    size = f"{encoder.image_size} px" if encoder.image_size else "the encoder's own image size"
    count = evaluation["num_images"]
    text = (
        f"{row.name}: {encoder.name} at {size}, {epochs} epochs, {len(row.evaluations)} "
        f"training{'s' if len(row.evaluations) > 1 else ''}, threshold {evaluation['threshold']:g}, "
        f"{count:,} {split} images"
    )
    if table.test_images is not None and count != table.test_images:
        text += f" where the published test has {table.test_images:,}"
    if settings.data.train_fraction < 1:
        text += f", {settings.data.train_fraction:g} of the training images"
    options = {name: value for name, value in settings.data.options.items() if name != "seed"}
    if options:
        text += f", data options {', '.join(f'{name}={value}' for name, value in options.items())}"
    lines = [f"{text}."]
    labels = len(table.header) - table.header.index(table.labels_from) if table.labels_from else None
    if labels is not None:
        labels -= "mAP" in table.header[-1:]
        if len(evaluation["labels"]) != labels:
            lines.append(f"{row.name}: has {len(evaluation['labels'])} labels, the published table {labels}.")
    return lines


def _percent(values: Sequence[float]) -> str:
    mean = float(np.mean(values)) if values else math.nan
    return "-" if math.isnan(mean) else f"{100 * mean:.1f}"
