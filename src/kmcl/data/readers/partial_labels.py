"""Labels that were not annotated in some rows: named row by row, or by what each source of rows annotates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.readers.name_columns import read_names
from kmcl.data.readers.row_problems import RowProblem
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.readers.table_targets import LabelTargets
from kmcl.data.yaml_files import read_yaml
from kmcl.errors import InputError, suggest
from kmcl.home_folder import expand_home

Sources = Mapping[str, Sequence[str]]
"""The labels that each source annotates."""


def read_sources(given: Path | Sources, folder: Path) -> Sources:
    """From a mapping, or from a YAML file such as `clinic: [cat, dog]`; `folder`: where its path starts."""
    if not isinstance(given, Path):
        return given
    path = folder / expand_home(given)
    content = read_yaml(path, "sources")
    if not isinstance(content, dict) or not all(isinstance(names, list) for names in content.values()):
        raise InputError(
            f"sources {path} must have a list of labels for each source, as in 'clinic: [cat, dog]'"
        )
    return {str(name): [str(label) for label in labels] for name, labels in content.items()}


def apply_sources(table: TableRows, labelled: LabelTargets, column: str, sources: Sources) -> LabelTargets:
    """Labels that the source of a row does not annotate become unknown; one that is present is an error.

    column: has the source of each row
    """
    position = {label: index for index, label in enumerate(labelled.labels)}
    annotated = {}
    for source, labels in sources.items():
        for label in labels:
            if label not in position:
                near = suggest(label, labelled.labels)
                raise InputError(f"source {source!r} annotates {label!r}, which is not a label{near}")
        annotated[source] = np.isin(np.arange(len(position)), [position[label] for label in labels])
    unknown = np.zeros(labelled.targets.shape, dtype=np.bool_)
    problems = []
    for row, (source, line) in enumerate(zip(table.column(column), table.lines, strict=True)):
        if source in annotated:
            unknown[row] = ~annotated[source]
        else:
            message = f"column {column!r} has the source {source!r}, not among {', '.join(sources)}"
            problems.append(RowProblem(line, message, f"column {column!r} has unknown sources", source))
    table.refuse(problems)
    return _with_unknown(table, labelled, unknown, f"the source in column {column!r} does not annotate")


def apply_unknown_names(table: TableRows, labelled: LabelTargets, column: str) -> LabelTargets:
    """The labels that a column names become unknown in its rows; one that is present there is an error."""
    position = {label: index for index, label in enumerate(labelled.labels)}
    unknown = np.zeros(labelled.targets.shape, dtype=np.bool_)
    problems = []
    for row, (names, line) in enumerate(zip(read_names(table, column, None), table.lines, strict=True)):
        for name in names:
            if name in position:
                unknown[row, position[name]] = True
            else:
                message = f"column {column!r} names {name!r}, not among the labels{suggest(name, position)}"
                kind = f"column {column!r} names what is not among the labels"
                problems.append(RowProblem(line, message, kind, name))
    table.refuse(problems)
    return _with_unknown(table, labelled, unknown, f"column {column!r} calls unknown")


def _with_unknown(
    table: TableRows,
    labelled: LabelTargets,
    unknown: npt.NDArray[np.bool_],
    why: str,
) -> LabelTargets:
    contradicted = [
        RowProblem(table.lines[row], f"label {labelled.labels[label]!r} is present, which {why}")
        for row, label in np.argwhere(unknown & (labelled.targets == 1)).tolist()
    ]
    table.refuse(contradicted)
    targets = np.where(unknown, np.int8(UNKNOWN), labelled.targets)
    return LabelTargets(labelled.labels, targets, labelled.notes)
