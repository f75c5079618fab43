"""Targets from the cells of a table: one column per label, with 1 and 0 or what people write instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Literal

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.readers.row_problems import RowProblem, shown_value
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.target_pairs import blocks_of_rows

Unlisted = Literal["unknown", "absent"]
"""What a label is in a row that does not mention it."""

MARKS = ("x", "✓", "✔")
BLANKS = ("", "-", "–")

CELL_VALUES: dict[str, int] = {
    **dict.fromkeys(("1", "1.0", "true", "yes", "y", *MARKS), 1),
    **dict.fromkeys(("0", "0.0", "false", "no", "n"), 0),
    **dict.fromkeys((*BLANKS, "?", "-1", "-1.0", "nan", "na", "n/a", "none", "null", "<na>"), UNKNOWN),
}
_BLANK, _BAD = 254, 253
EXPECTED = "1, 0, or blank or -1 for unknown"


@dataclass(frozen=True)
class LabelTargets:
    """Labels in order with the N x L targets of a table's rows, and what was taken for granted."""

    labels: tuple[str, ...]
    targets: npt.NDArray[np.int8]
    notes: tuple[str, ...] = ()


def targets_from_columns(
    table: TableRows,
    columns: Sequence[str],
    unlisted: Unlisted | None = None,
    advice: Callable[[Sequence[RowProblem]], str] = lambda _: "",
) -> LabelTargets:
    """One column per label, holding 1 or 0 (also 1.0, true, yes, x, ...), or blank, -1 or NaN for unknown.

    unlisted: what a blank cell (also a dash) means. By default unknown, but absent in a table with no other
              cells than marks: who marks what is present with an x leaves the rest blank.
    advice:   what the user can do about problems
    """
    positions = [table.header.index(name) for name in columns]
    pick = itemgetter(*positions) if len(positions) > 1 else itemgetter(slice(positions[0], positions[0] + 1))
    codes = _CellCodes()
    targets = np.empty((len(table.rows), len(columns)), dtype=np.int8)
    for index, row in enumerate(table.rows):
        # A million rows of 200 columns: no arithmetic of Python's own for each cell.
        targets[index] = np.frombuffer(bytes(map(codes.__getitem__, pick(row))), dtype=np.int8)
    if _BAD in codes.values():
        problems = [problem for name in columns for problem in _problems(table, name)]
        table.refuse(problems, advice(problems))
        no_labels = {problem.column for problem in problems if problem.is_whole_column}
        targets = targets[:, [name not in no_labels for name in columns]]
        columns = [name for name in columns if name not in no_labels]
        targets[targets == np.int8(_BAD - 256)] = UNKNOWN
    written = {cell.strip().lower() for cell, code in codes.items() if code != _BAD}
    filled = written.difference(BLANKS)
    has_marks_alone = filled != written and bool(filled) and filled <= {*MARKS}
    is_absent = unlisted == "absent" or (unlisted is None and has_marks_alone)
    for _, block in blocks_of_rows(targets):
        block[block == np.int8(_BLANK - 256)] = 0 if is_absent else UNKNOWN
    taken = "every filled cell is a mark (x), so a blank cell means absent; unlisted=unknown changes that"
    notes = (taken,) if has_marks_alone and unlisted is None else ()
    return LabelTargets(tuple(columns), targets, notes)


class _CellCodes(dict[str, int]):
    """The byte of each cell that occurs: its target (-1 as 255), or that it is blank or no target."""

    def __missing__(self, cell: str) -> int:
        text = cell.strip().lower()
        code = _BLANK if text in BLANKS else CELL_VALUES.get(text, _BAD - 256) % 256
        self[cell] = code
        return code


def _problems(table: TableRows, column: str) -> list[RowProblem]:
    """A problem for each cell that is no target; one for the whole column if most of its cells are none."""
    kind = f"column {column!r} holds values other than {EXPECTED}"
    cells = table.column(column)
    bad = [
        (line, cell) for line, cell in zip(table.lines, cells, strict=True) if cell.lower() not in CELL_VALUES
    ]
    num_filled = sum(1 for cell in cells if cell)
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
