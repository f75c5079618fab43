"""Targets from the cells of a table: 0/1 columns, or one column of label names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.readers.label_lists import is_list_column, parse_list
from kmcl.data.readers.row_problems import RowProblem, shown_value
from kmcl.data.readers.table_rows import TableRows
from kmcl.errors import InputError, suggest

SEPARATORS = ("|", ";", ",")

CELL_VALUES: dict[str, int] = {
    **dict.fromkeys(("1", "1.0", "true"), 1),
    **dict.fromkeys(("0", "0.0", "false"), 0),
    **dict.fromkeys(("", "-1", "-1.0", "nan", "na", "n/a", "none", "null", "<na>"), UNKNOWN),
}


@dataclass(frozen=True)
class LabelTargets:
    """Labels in order with the N x L targets of a table's rows."""

    labels: tuple[str, ...]
    targets: npt.NDArray[np.int8]


def targets_from_columns(table: TableRows, columns: Sequence[str]) -> LabelTargets:
    """One column per label, holding 1 or 0 (also 1.0, true, ...), or blank, -1 or NaN for unknown."""
    positions = [table.header.index(name) for name in columns]
    values = dict(CELL_VALUES)
    targets = np.empty((len(table.rows), len(columns)), dtype=np.int8)
    problems: list[RowProblem] = []
    for index, (row, line) in enumerate(zip(table.rows, table.lines, strict=True)):
        for label, position in enumerate(positions):
            cell = row[position]
            value = values.get(cell)
            if value is None:
                value = CELL_VALUES.get(cell.strip().lower())
                if value is None:
                    problems.append(_bad_cell(line, columns[label], cell))
                    continue
                values[cell] = value
            targets[index, label] = value
    if problems:
        raise table.row_error(problems)
    return LabelTargets(tuple(columns), targets)


def _bad_cell(line: int, column: str, cell: str) -> RowProblem:
    expected = "1, 0, or blank or -1 for unknown"
    return RowProblem(
        line,
        f"column {column!r} holds {shown_value(cell.strip())}, expected {expected}",
        kind=f"column {column!r} holds values other than {expected}",
        value=cell.strip(),
        column=column,
    )


def targets_from_names(
    table: TableRows, column: str, separator: str | None, names: Sequence[str] | None
) -> LabelTargets:
    """One column of label names: with a separator between them, or lists such as `['cat', 'dog']`.

    A blank cell means that none is present.

    separator: guessed from the cells when None: "|", else ";", else ","; lists need none.
    names:     the labels in their order; when None, every name that occurs, in alphabetical order.
    """
    cells = table.column(column)
    if is_list_column(cells):
        lists = _read_lists(table, column, cells)
    else:
        separator = separator or _guess_separator(table, column, cells)
        lists = [
            [name for name in (part.strip() for part in cell.split(separator)) if name] for cell in cells
        ]
    labels = tuple(names) if names else tuple(sorted({name for row in lists for name in row}))
    if not labels:
        raise InputError(f"{table.title}: column {column!r} names no label in any row")
    position = {name: index for index, name in enumerate(labels)}
    targets = np.zeros((len(lists), len(labels)), dtype=np.int8)
    problems: list[RowProblem] = []
    for index, (row, line) in enumerate(zip(lists, table.lines, strict=True)):
        for name in row:
            if name in position:
                targets[index, position[name]] = 1
            else:
                message = f"column {column!r} names {name!r}, not among the labels{suggest(name, labels)}"
                kind = f"column {column!r} names what is not among the labels"
                problems.append(RowProblem(line, message, kind, name))
    if problems:
        raise table.row_error(problems)
    return LabelTargets(labels, targets)


def _read_lists(table: TableRows, column: str, cells: Sequence[str]) -> list[list[str]]:
    lists: list[list[str]] = []
    problems: list[RowProblem] = []
    for cell, line in zip(cells, table.lines, strict=True):
        names = parse_list(cell) if cell else []
        if names is None:
            message = f"column {column!r} holds {shown_value(cell)}, expected a list as in other rows"
            kind = f"column {column!r} has lists, and other cells that are none"
            problems.append(RowProblem(line, message, kind, cell))
        else:
            lists.append(names)
    if problems:
        raise table.row_error(problems)
    return lists


def _guess_separator(table: TableRows, column: str, cells: Sequence[str]) -> str:
    used = [separator for separator in SEPARATORS if any(separator in cell for cell in cells)]
    if "|" in used and ";" in used:
        raise InputError(
            f"{table.title}: column {column!r} holds both '|' and ';'; say which separates the labels "
            "with separator='|' or separator=';'"
        )
    return used[0] if used else SEPARATORS[0]
