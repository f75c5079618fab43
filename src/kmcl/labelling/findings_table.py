"""Findings and the decisions about them as a table, and a dataset's labels with the accepted ones changed."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NamedTuple

from kmcl.data import open_dataset
from kmcl.data.dataset import Dataset, Split
from kmcl.data.readers.table_rows import read_rows
from kmcl.data.table_writing import write_table
from kmcl.data.vector_writing import write_vectors
from kmcl.data.vectors import feature_dim
from kmcl.errors import InputError, suggest
from kmcl.labelling.audit import Audit, Finding

COLUMNS = ("image", "label", "given", "suggested", "decision", "kind", "probability", "line", "why")
NEEDED_COLUMNS = ("image", "label", "suggested", "decision")
ACCEPT, REJECT = "accept", "reject"


class Corrections(NamedTuple):
    """A dataset with accepted suggestions, and what was done."""

    dataset: Dataset
    num_changed: int
    num_rejected: int
    num_undecided: int


def findings_to_csv(audit: Audit, everything: Split) -> str:
    """One row per finding, the most suspicious first; the decision is left to a person."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    findings = sorted(audit.findings, key=lambda finding: -finding.probability)
    writer.writerows(finding_cells(audit, everything, finding) for finding in findings)
    return text.getvalue()


def finding_cells(audit: Audit, everything: Split, finding: Finding) -> list[str | int]:
    """The cells of a row, in the order of `COLUMNS`."""
    line = "" if everything.lines is None else int(everything.lines[finding.row])
    return [
        everything.images.name(finding.row),
        audit.labels[finding.label],
        finding.given,
        finding.suggested,
        "",
        finding.kind,
        f"{finding.probability:.4f}",
        line,
        "; ".join(finding.reasons),
    ]


def correct_labels(dataset: Dataset, path: Path) -> Corrections:
    """The dataset with the accepted suggestions of a table of decisions."""
    table = read_rows(path)
    missing = [name for name in NEEDED_COLUMNS if name not in table.header]
    if missing:
        raise InputError(
            f"table {path} line 1: there is no column {missing[0]!r}; is it from kmcl data audit?"
        )
    places: dict[str, list[tuple[str, int]]] = {}
    for name, split in dataset.splits.items():
        for row in range(len(split)):
            places.setdefault(split.images.name(row), []).append((name, row))
    targets = {name: split.targets.copy() for name, split in dataset.splits.items()}
    counts = {ACCEPT: 0, REJECT: 0, "": 0}
    columns = (table.column(name) for name in NEEDED_COLUMNS)
    for line, image, label, suggested, decision in zip(table.lines, *columns, strict=True):
        where = f"table {path} line {line}"
        if decision.lower() not in counts:
            raise InputError(f"{where}: decision {decision!r} is not {ACCEPT}, {REJECT} or empty")
        counts[decision.lower()] += 1
        if decision.lower() == ACCEPT:
            column = _label_place(dataset, label, where)
            if suggested not in ("0", "1"):
                raise InputError(f"{where}: suggested must be 0 or 1; got {suggested!r}")
            for name, row in _image_places(places, image, where):
                targets[name][row, column] = int(suggested)
    splits = {name: replace(split, targets=targets[name]) for name, split in dataset.splits.items()}
    return Corrections(replace(dataset, splits=splits), counts[ACCEPT], counts[REJECT], counts[""])


def correct(
    data: str | PathLike[str],
    decisions: str | PathLike[str],
    output: str | PathLike[str],
    *,
    options: Mapping[str, Any] | None = None,
) -> Corrections:
    """Write the labels of a dataset with the suggestions of an audit that the table `decisions` accepts."""
    file = Path(output)
    dataset = open_dataset(data, **(options or {}))
    if file.exists() and file.resolve() == (source_file(fspath(data)) or Path()).resolve():
        raise InputError(f"{file}: is the dataset itself; choose another file for --output")
    of_vectors = feature_dim(dataset) is not None
    first = next(split.images.name(0) for split in dataset.splits.values() if len(split))
    if not of_vectors and not Path(first).is_file():
        raise InputError(
            f"{first}: is no image file, which a table needs; write the images with kmcl data convert, and "
            "audit the table it writes"
        )
    corrected = correct_labels(dataset, Path(decisions))
    try:
        if of_vectors:
            write_vectors(corrected.dataset, file)
        else:
            write_table(corrected.dataset, file, file.parent)
    except OSError as error:
        raise InputError(f"{file}: cannot be written: {error.strerror or error}") from error
    return corrected


def source_file(data: str) -> Path | None:
    """The file of a table or of feature vectors; None for other datasets."""
    path = Path(data.removeprefix("table:").removeprefix("features:"))
    return path if path.is_file() else None


def _label_place(dataset: Dataset, label: str, where: str) -> int:
    if label not in dataset.labels:
        raise InputError(f"{where}: {dataset.name} has no label {label!r}{suggest(label, dataset.labels)}")
    return dataset.labels.index(label)


def _image_places(places: dict[str, list[tuple[str, int]]], image: str, where: str) -> list[tuple[str, int]]:
    if image not in places:
        raise InputError(f"{where}: the dataset has no image {image}")
    return places[image]
