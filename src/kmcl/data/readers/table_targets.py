"""Targets from the cells of a table: one column per label, with 1 and 0 or what people write instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.readers.row_problems import RowProblem, shown_value
from kmcl.data.readers.table_rows import TableRows

Unlisted = Literal["unknown", "absent"]
"""What a label is in a row that does not mention it."""

MARKS = ("x", "✓", "✔")
BLANKS = ("", "-", "–")

CELL_VALUES: dict[str, int] = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "y", *MARKS), 1),
    **dict.fromkeys(("0", "0.0", "false", "no", "n"), 0),
    **dict.fromkeys((*BLANKS, "?", "-1", "-1.0", "nan", "na", "n/a", "none", "null", "<na>"), UNKNOWN),
}
EXPECTED = "1, 0, or blank or -1 for unknown"


@dataclass(frozen=True)
class LabelTargets:
    """Labels in order with the N x L targets of a table's rows, and what was taken for granted."""

    labels: tuple[str, ...]
    targets: npt.NDArray[np.int8]
    notes: tuple[str, ...] = ()


def targets_from_columns(
    table: TableRows, columns: Sequence[str], unlisted: Unlisted | None = None
) -> LabelTargets:
    """One column per label, holding 1 or 0 (also 1.0, true, yes, x, ...), or blank, -1 or NaN for unknown.

    unlisted: what a blank cell (also a dash) means. By default unknown, but absent in a table with no other
              cells than marks: who marks what is present with an x leaves the rest blank.
    """
    positions = [table.header.index(name) for name in columns]
    values: dict[str, int | None] = {}
    targets = np.empty((len(table.rows), len(columns)), dtype=np.int8)
    bad: dict[str, list[tuple[int, str]]] = {name: [] for name in columns}
    for index, (row, line) in enumerate(zip(table.rows, table.lines, strict=True)):
        for label, position in enumerate(positions):
            cell = row[position]
            if cell not in values:
                values[cell] = CELL_VALUES.get(cell.strip().lower())
            value = values[cell]
            if value is None:
                bad[columns[label]].append((line, cell.strip()))
            else:
                targets[index, label] = value
    if any(bad.values()):
        raise table.row_error([problem for name in columns for problem in _problems(table, name, bad[name])])
    written = {cell.strip().lower() for cell in values}
    filled = written.difference(BLANKS)
    has_marks_alone = filled != written and bool(filled) and filled <= {*MARKS}
    if unlisted == "absent" or (unlisted is None and has_marks_alone):
        is_blank = np.array(
            [[row[position].strip() in BLANKS for position in positions] for row in table.rows]
        )
        targets[is_blank] = 0
    taken = "every filled cell is a mark (x), so a blank cell means absent; unlisted=unknown changes that"
    notes = (taken,) if has_marks_alone and unlisted is None else ()
    return LabelTargets(tuple(columns), targets, notes)


def _problems(table: TableRows, column: str, bad: Sequence[tuple[int, str]]) -> list[RowProblem]:
    """A problem for each cell that is no target; one for the whole column if most of its cells are none."""
    kind = f"column {column!r} holds values other than {EXPECTED}"
    num_filled = sum(1 for cell in table.column(column) if cell)
    if len(bad) > max(1, num_filled / 2):
        examples = [shown_value(cell) for cell in dict.fromkeys(cell for _, cell in bad)][:2]
        message = f"{kind} in {len(bad)} of {len(table.rows)} rows, such as {' and '.join(examples)}"
        return [RowProblem(bad[0][0], message, column=column, is_whole_column=True)]
    return [
        RowProblem(
            line, f"column {column!r} holds {shown_value(cell)}, expected {EXPECTED}", kind, cell, column
        )
        for line, cell in bad
    ]
