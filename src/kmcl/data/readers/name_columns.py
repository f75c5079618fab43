"""Targets from columns of label names: `cat|dog` in one column, or one name in each of several."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.readers.label_lists import is_list_column, parse_list
from kmcl.data.readers.row_problems import RowProblem, shown_value
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.readers.table_targets import CELL_VALUES, LabelTargets, Unlisted
from kmcl.errors import InputError, suggest

SEPARATORS = ("|", ";", ",")
NO_LABEL = "No Finding"
"""What ChestX-ray14 writes for an image without any label."""

_NUMBERED = re.compile(r"(labels?|tags?|class|category|finding|keyword)[ _-]?\d+", re.IGNORECASE)


def numbered_columns(table: TableRows) -> tuple[str, ...]:
    """`label_1`, `label_2`, ... with a name in each; none if there is only one or they hold 0 and 1."""
    matches = [match for match in map(_NUMBERED.fullmatch, table.header) if match]
    if len(matches) < 2 or len({match[1].lower() for match in matches}) > 1:
        return ()
    columns = tuple(match[0] for match in matches)
    pick = itemgetter(*(table.header.index(name) for name in columns))
    cells = set(chain.from_iterable(map(pick, table.rows)))
    return columns if any(cell.strip().lower() not in CELL_VALUES for cell in cells) else ()


def targets_from_names(
    table: TableRows,
    columns: Sequence[str],
    separator: str | None,
    names: Sequence[str] | None,
    unlisted: Unlisted | None = None,
) -> LabelTargets:
    """The targets of the names in some columns: with a separator, or lists such as `['cat', 'dog']`.

    A blank cell means that none is present, as does "No Finding" where it never stands with another name; in
    a row that is not annotated, every label that is not named is unknown.

    separator: guessed from the cells when None: "|", else ";", else ",", else a space if each word between
               spaces is a whole cell elsewhere; lists need none, nor do several columns of one name each.
    names:     the labels in their order; when None, every name that occurs, in alphabetical order.
    unlisted:  whether a label that a row does not name is absent (the default) or unknown.
    """
    if len(columns) > 1 and separator is None:
        separator = "\n"
    read = [read_names(table, column, separator) for column in columns]
    lists = read[0]
    if len(columns) > 1:
        lists = [tuple(chain.from_iterable(parts)) for parts in zip(*read, strict=True)]
    has_none = np.array([row == (NO_LABEL,) for row in lists], dtype=np.bool_)
    drops_none = (
        has_none.any()
        and NO_LABEL not in (names or ())
        and all(row == (NO_LABEL,) or NO_LABEL not in row for row in lists)
    )
    if drops_none:
        lists = [() if none else row for row, none in zip(lists, has_none, strict=True)]
    labels = tuple(names) if names else tuple(sorted({name for row in lists for name in row}))
    if not labels:
        raise InputError(f"{table.title}: column {columns[0]!r} names no label in any row")
    position = {name: index for index, name in enumerate(labels)}
    targets: npt.NDArray[np.int8] = np.zeros((len(lists), len(labels)), dtype=np.int8)
    if unlisted == "unknown":
        targets[~has_none if drops_none else slice(None)] = UNKNOWN
    unannotated = sorted(set().union(*(table.unannotated.get(column, ()) for column in columns)))
    targets[unannotated] = UNKNOWN
    problems: list[RowProblem] = []
    shown = " and ".join(repr(column) for column in columns)
    for index, (row, line) in enumerate(zip(lists, table.lines, strict=True)):
        for name in row:
            if name in position:
                targets[index, position[name]] = 1
            else:
                message = f"column {shown} names {name!r}, not among the labels{suggest(name, labels)}"
                kind = f"column {shown} names what is not among the labels"
                problems.append(RowProblem(line, message, kind, name))
    table.refuse(problems)
    notes = [f"{NO_LABEL!r} means that an image has no label"] if drops_none else []
    if separator is None:
        notes += _notes_on_spaces(table, columns[0])
    return LabelTargets(labels, targets, tuple(notes))


def read_names(table: TableRows, column: str, separator: str | None) -> list[tuple[str, ...]]:
    """The names in each cell of a column."""
    cells = table.column(column)
    if is_list_column(cells):
        return _read_lists(table, column, cells)
    separator = separator or _guess_separator(table, column, cells)
    known: dict[str, str] = {}  # one string for all cells with the same name
    return [
        tuple([known.setdefault(name, name) for part in cell.split(separator) if (name := part.strip())])
        for cell in cells
    ]


def _read_lists(table: TableRows, column: str, cells: Sequence[str]) -> list[tuple[str, ...]]:
    lists: list[tuple[str, ...]] = []
    problems: list[RowProblem] = []
    for cell, line in zip(cells, table.lines, strict=True):
        names = parse_list(cell) if cell else []
        if names is None:
            message = f"column {column!r} holds {shown_value(cell)}, expected a list as in other rows"
            kind = f"column {column!r} has lists, and other cells that are none"
            problems.append(RowProblem(line, message, kind, cell))
        lists.append(tuple(names or ()))
    table.refuse(problems)
    return lists


def _guess_separator(table: TableRows, column: str, cells: Sequence[str]) -> str:
    used = [separator for separator in SEPARATORS if any(separator in cell for cell in cells)]
    if "|" in used and ";" in used:
        raise InputError(
            f"{table.title}: column {column!r} holds both '|' and ';'; say which separates the labels "
            "with separator='|' or separator=';'"
        )
    if used:
        return used[0]
    return " " if _spaces_separate(cells) else SEPARATORS[0]


def _spaces_separate(cells: Sequence[str]) -> bool:
    """Whether each word of the cells with several is a whole cell elsewhere: `scab rust`, `scab` and `rust`.

    Of names with spaces, such as "stop sign", that is hardly ever true.
    """
    distinct = {cell for cell in cells if cell and cell != NO_LABEL}
    words = {word for cell in distinct if " " in cell for word in cell.split()}
    return bool(words) and words <= distinct


def _notes_on_spaces(table: TableRows, column: str) -> list[str]:
    """What was taken for granted about cells such as `clear primary`, or how to say that they are lists."""
    cells = table.column(column)
    if is_list_column(cells) or any(sign in cell for cell in cells for sign in SEPARATORS):
        return []
    if _spaces_separate(cells):
        return [f"spaces separate the names in column {column!r}; separator='|' changes that"]
    distinct = {cell for cell in cells if cell and cell != NO_LABEL}
    example = next((cell for cell in cells if " " in cell and cell != NO_LABEL), None)
    # Fewer words than cells: they are combined, as labels are.
    if example is None or len({word for cell in distinct for word in cell.split()}) >= len(distinct):
        return []
    return [f"{example!r} in column {column!r} is one label; if spaces separate names, give -o separator=' '"]
