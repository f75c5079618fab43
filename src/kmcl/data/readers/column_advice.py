"""Which options make a table usable whose columns are not all labels."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence

from kmcl.data.readers.label_lists import is_list_column
from kmcl.data.readers.row_problems import RowProblem
from kmcl.data.readers.table_rows import TableRows

NAMES_OF_NAME_COLUMNS = {
    *("annotation", "annotations", "categories", "category", "class", "classes", "finding", "findings"),
    *("finding labels", "keywords", "label", "label_names", "labels", "objects", "tag", "tags"),
}


def column_advice(table: TableRows, problems: Sequence[RowProblem], ignored: Sequence[str]) -> str:
    """The options to give, if most cells of a column are no target: then it is no label.

    ignored: columns that are left out already, which the option has to repeat
    """
    counts = Counter(problem.column for problem in problems)
    whole = {problem.column for problem in problems if problem.is_whole_column}
    columns = [
        name
        for name in table.header
        if name in whole or counts[name] > len(list(filter(None, table.column(name)))) / 2
    ]
    if not columns or any("," in name for name in columns):
        return ""
    ignore = option_flag("ignore_columns", ",".join([*ignored, *columns]))
    named = next((name for name in columns if _has_label_names(name, table.column(name))), None)
    if len(several := _columns_of_names(table, columns)) > 1:
        return (
            f"if {_listed(several)} have the names of the labels, give "
            f"{option_flag('labels_column', ','.join(several))}; if they are not about labels, {ignore}"
        )
    if named is None:
        what = "is not a label" if len(columns) == 1 else "are not labels"
        return f"if {_listed(columns)} {what}, give {ignore}"
    return (
        f"if {named!r} has the names of the labels, give {option_flag('labels_column', named)}; "
        f"if it is not about labels, {ignore}"
    )


def option_flag(name: str, value: str) -> str:
    """`-o name=value` as it is typed in a shell."""
    return f"-o {shlex.quote(f'{name}={value}')}"


def _listed(columns: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in columns)


def _columns_of_names(table: TableRows, columns: Sequence[str]) -> list[str]:
    """Columns of words that occur in another of them too, as `primary` and `secondary` labels do."""
    words = {
        name: {cell for cell in table.column(name) if any(letter.isalpha() for letter in cell)}
        for name in columns
    }
    return [name for name in columns if any(words[name] & words[other] for other in columns if other != name)]


def _has_label_names(column: str, cells: Sequence[str]) -> bool:
    if is_list_column(cells):
        return True
    has_words = sum(any(letter.isalpha() for letter in cell) for cell in cells) > len(cells) / 2
    is_divided = any("|" in cell or ";" in cell for cell in cells)
    return has_words and (is_divided or column.lower() in NAMES_OF_NAME_COLUMNS)
