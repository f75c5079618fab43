"""Feature vectors in Parquet files: a column of lists of numbers, or a column per number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kmcl.data.readers.feature_file import KIND, VECTOR_NAMES, FeatureFile
from kmcl.data.readers.frame_rows import rows_of_frame
from kmcl.data.readers.row_problems import RowProblem
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.vectors import Vectors, float_rows
from kmcl.errors import InputError, suggest

if TYPE_CHECKING:
    import pyarrow as pa

ADVICE = "; it needs a column with the names of each row's labels (labels), or a column of 1 and 0 per label"
FEWEST_COLUMNS = 2
_NUMBERED = re.compile(r"(.*?)(\d+)")


def read_columns(path: Path, column: str | None, prefix: str | None) -> FeatureFile:
    """The rows of a Parquet file; `column` and `prefix` name the feature vectors, where they were given."""
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"features {path} needs the package pyarrow: pip install 'kmcl[train]'") from None
    try:
        table = pq.ParquetFile(path).read()
    except Exception as error:  # pyarrow's errors have no base but Exception
        raise InputError(f"features {path} is not a readable Parquet file: {error}") from error
    if not table.num_rows:
        raise InputError(f"features {path}: has no rows")
    names = [column] if column is not None else _numbered(path, table, prefix) if prefix is not None else None
    names = names or _found(path, table)
    for name in names:
        _require(path, table, name)
    others = [
        name for name in table.column_names if name not in names and not name.startswith("__index_level_")
    ]
    columns = _other_columns(path, table, others)
    if len(names) == 1 and _is_list(table.schema.field(names[0]).type):
        rows = _from_lists(path, table, names[0], columns)
    else:
        rows = _from_columns(path, table, names)
    return FeatureFile(rows, columns, label_advice=ADVICE)


def _found(path: Path, table: pa.Table) -> list[str]:
    """The columns of the feature vectors: the usual names, the only lists of numbers, the only x0, x1, ..."""
    kinds = {name: table.schema.field(name).type for name in table.column_names}
    lists = [name for name, kind in kinds.items() if _is_list(kind) and _is_float(kind.value_type)]
    usual = [name for name, kind in kinds.items() if name.lower() in VECTOR_NAMES and _is_list(kind)]
    if len(usual) == 1 or len(lists) == 1:
        return usual[:1] if len(usual) == 1 else lists
    if lists or usual:
        choices = ", ".join(usual or lists)
        raise InputError(
            f"features {path}: which of the columns {choices} has the feature vectors? Give "
            "features_column=..."
        )
    groups: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        match = _NUMBERED.fullmatch(name)
        if match and _is_float(kind):
            groups.setdefault(match[1], []).append(name)
    groups = {prefix: names for prefix, names in groups.items() if len(names) >= FEWEST_COLUMNS}
    if len(groups) == 1:
        return _in_order(next(iter(groups.values())))
    if groups:
        raise InputError(
            f"features {path}: columns of numbers begin with {', '.join(map(repr, groups))}; say which are "
            "the features with features_prefix=..."
        )
    raise InputError(
        f"features {path}: has no column of lists of numbers, and no columns x0, x1, ... of floating-point "
        f"numbers; there are {', '.join(table.column_names)}"
    )


def _numbered(path: Path, table: pa.Table, prefix: str) -> list[str]:
    names = [
        name
        for name in table.column_names
        if name.startswith(prefix) and name.removeprefix(prefix).isdecimal()
    ]
    if not names:
        raise InputError(
            f"features {path}: no column is {prefix!r} followed by a number; there are "
            f"{', '.join(table.column_names)}"
        )
    return _in_order(names)


def _in_order(names: list[str]) -> list[str]:
    """x2 before x10, whatever the order in the file."""
    return sorted(names, key=lambda name: int(re.findall(r"\d+", name)[-1]))


def _require(path: Path, table: pa.Table, name: str) -> None:
    if name not in table.column_names:
        raise InputError(
            f"features {path}: has no column {name!r}{suggest(name, table.column_names)}; there are "
            f"{', '.join(table.column_names)}"
        )
    kind = table.schema.field(name).type
    if not _is_list_of_numbers(kind) and not _is_number(kind):
        raise InputError(
            f"features {path}: column {name!r} must hold numbers or lists of them; it holds {kind}"
        )


def _from_lists(path: Path, table: pa.Table, name: str, columns: TableRows) -> Vectors:
    """The vectors of a column; rows of `columns` without one are refused."""
    import pyarrow as pa
    import pyarrow.compute as pc

    column = table.column(name).combine_chunks()
    lengths = pc.fill_null(pc.list_value_length(column), -1).to_numpy(zero_copy_only=False)
    width = int(np.bincount(np.maximum(lengths, 0)).argmax())
    problems = [
        RowProblem(
            int(row),
            f"column {name!r} has {'no list' if lengths[row] < 0 else f'{lengths[row]} numbers'}, other rows "
            f"have {width}",
            f"column {name!r} has not {width} numbers, as other rows have",
        )
        for row in np.flatnonzero(lengths != width)
    ]
    columns.refuse(problems)
    usable = lengths == width
    values = column.filter(pa.array(usable)).flatten().to_numpy(zero_copy_only=False)
    rows = np.zeros((len(usable), width), values.dtype)
    rows[usable] = values.reshape(np.count_nonzero(usable), width)
    return float_rows(rows, f"features {path}, column {name!r}")


def _from_columns(path: Path, table: pa.Table, names: list[str]) -> Vectors:
    rows = np.empty((table.num_rows, len(names)), dtype=np.float64)
    for place, name in enumerate(names):
        rows[:, place] = table.column(name).to_numpy()  # NaN where it is null
    try:
        return float_rows(rows, f"features {path}, columns {names[0]} to {names[-1]}")
    except InputError as error:
        raise InputError(f"{error}; a feature is a column") from None


def _other_columns(path: Path, table: pa.Table, names: list[str]) -> TableRows:
    if not names:
        return TableRows(
            path, (), [[] for _ in range(table.num_rows)], list(range(table.num_rows)), kind=KIND
        )
    try:
        frame = table.select(names).to_pandas(ignore_metadata=True)
    except Exception as error:  # pyarrow's errors have no base but Exception
        raise InputError(f"features {path} is not a readable Parquet file: {error}") from error
    rows = rows_of_frame(frame, path)
    return TableRows(path, rows.header, rows.rows, list(range(len(rows.rows))), kind=KIND)


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_list_of_numbers(kind: Any) -> bool:
    return _is_list(kind) and _is_number(kind.value_type)


def _is_float(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_floating(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    return _is_float(kind) or bool(pa.types.is_integer(kind))
