"""Rows of text from the columns of a pandas DataFrame, whatever their types."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kmcl.data.readers.label_lists import write_list
from kmcl.data.readers.table_rows import TableRows, check_header
from kmcl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def rows_of_frame(frame: pd.DataFrame, path: Path | None = None) -> TableRows:
    """The cells of a DataFrame as text, those of the Parquet file `path` where it was read from one."""
    title = "DataFrame" if path is None else f"table {path}"
    names = [str(name) for name in frame.columns]
    header = check_header(title if path is None else f"{title} line 1", names)
    if frame.empty:
        raise InputError(f"{title} has no rows")
    columns = [
        _column_text(frame.iloc[:, position], f"{title}: column {name!r}")
        for position, name in enumerate(header)
    ]
    rows = [list(row) for row in zip(*columns, strict=True)]
    # Parquet has no lines; rows are numbered as if the header were the first.
    first = 1 if path is None else 2
    return TableRows(path, header, rows, list(range(first, first + len(rows))))


def _column_text(column: pd.Series[Any], place: str) -> list[str]:
    try:
        return [
            "" if missing else _cell_text(value, place)
            for value, missing in zip(column, column.isna(), strict=True)
        ]
    except UnicodeDecodeError as error:
        raise InputError(f"{place} has text that is not UTF-8: {error.object!r}") from error


def _cell_text(value: object, place: str) -> str:
    if isinstance(value, (list, tuple, set, np.ndarray)):  # label names of one image
        return write_list(list(value))
    if isinstance(value, (bytes, dict)):
        raise InputError(
            f"{place} has cells of type {type(value).__name__}; images as bytes are read from Parquet files "
            "(table:images.parquet)"
        )
    return str(value)
