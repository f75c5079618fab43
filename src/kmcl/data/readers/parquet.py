"""Parquet and Arrow files as rows of text; columns of encoded images, as Hugging Face has them, are images.

Where Hugging Face's description of the columns is known, numbers of a `ClassLabel` become their names.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from kmcl.data.dataset import UNKNOWN, ImageStore
from kmcl.data.encoded_images import ArrowImages, ParquetImages, open_arrow
from kmcl.data.readers.frame_rows import rows_of_frame
from kmcl.data.readers.hf_features import Features, class_names, features_in_metadata
from kmcl.data.readers.table_rows import TableRows
from kmcl.errors import InputError

ARROW_SUFFIX = ".arrow"
ROWS_AT_ONCE = 16
"""While looking for the first image in a column: each may have megabytes."""


def read_parquet(path: Path, features: Features | None = None) -> TableRows:
    """The rows of a Parquet file, or of an Arrow stream (.arrow).

    features: the description of the columns, where the file does not have it
    """
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"table {path} needs the package pyarrow: pip install 'kmcl[train]'") from None
    stored: dict[str, ImageStore]
    try:
        if path.suffix.lower() == ARROW_SUFFIX:
            table = open_arrow(path)
            schema, num_rows = table.schema, table.num_rows
            columns = {name: _bytes_column(schema, name, _nulls_of_table(table)) for name in schema.names}
            stored = {name: ArrowImages(path, column, num_rows) for name, column in columns.items() if column}
            frame = table.drop_columns(list(stored)).to_pandas(ignore_metadata=True)
        else:
            file = pq.ParquetFile(path)
            schema, num_rows = file.schema_arrow, file.metadata.num_rows
            columns = {name: _bytes_column(schema, name, _nulls_of_file(file)) for name in schema.names}
            starts = _group_starts(file)
            stored = {name: ParquetImages(path, column, starts) for name, column in columns.items() if column}
            # The bytes of all images may exceed memory.
            kept = [name for name in schema.names if name not in stored]
            frame = file.read(kept).to_pandas(ignore_metadata=True)
    except Exception as error:  # pyarrow's errors have no base but Exception
        raise InputError(f"table {path} is not a readable Parquet or Arrow file: {error}") from error
    if not num_rows:
        raise InputError(f"table {path} has no rows")
    unannotated: dict[str, frozenset[int]] = {}
    for name, feature in (features or features_in_metadata(schema.metadata)).items():
        if name in frame.columns and (names := class_names(feature)):
            unannotated[name] = frozenset(
                row for row, value in enumerate(frame[name]) if _says_nothing(value)
            )
            frame[name] = [_named(value, names, path, name) for value in frame[name]]
    for name in frame.columns:
        if _is_struct(schema.field(name).type, "path"):
            frame[name] = [None if value is None else value["path"] for value in frame[name]]
    # pandas writes an index without a name as a column of this kind.
    header = [name for name in schema.names if not name.startswith("__index_level_")]
    for name in stored:
        frame[name] = ""
    rows = rows_of_frame(frame.reindex(columns=header, index=range(num_rows)), path)
    return TableRows(path, rows.header, rows.rows, rows.lines, stored, unannotated=unannotated)


def features_of_file(path: Path) -> Features:
    """The description of the columns in the file itself; empty if it has none."""
    import pyarrow.parquet as pq

    try:
        is_arrow = path.suffix.lower() == ARROW_SUFFIX
        schema = open_arrow(path).schema if is_arrow else pq.read_schema(path)
    except Exception as error:  # pyarrow's errors have no base but Exception
        raise InputError(f"table {path} is not a readable Parquet or Arrow file: {error}") from error
    return features_in_metadata(schema.metadata)


def _group_starts(file: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return np.cumsum([0, *sizes], dtype=np.int64)


def _bytes_column(schema: Any, name: str, is_empty: Callable[[str], bool]) -> str | None:
    """The column of encoded images in the column `name`; None if there is none or it is empty throughout."""
    import pyarrow as pa

    kind = schema.field(name).type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return name
    if not _is_struct(kind, "bytes"):
        return None
    # Images of a `datasets` column may be paths alone.
    return None if is_empty(f"{name}.bytes") else f"{name}.bytes"


def _is_struct(kind: Any, inner: str) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind) and kind.get_field_index(inner) >= 0)


def _nulls_of_table(table: Any) -> Callable[[str], bool]:
    def is_empty(column: str) -> bool:
        name, _, inner = column.partition(".")
        return all(chunk.field(inner).null_count == len(chunk) for chunk in table.column(name).chunks)

    return is_empty


def _nulls_of_file(file: Any) -> Callable[[str], bool]:
    """Whether a column is empty throughout; read up to its first image.

    Not from the statistics of the file: pyarrow ends the process where their description is damaged.
    """

    def is_empty(column: str) -> bool:
        name, _, inner = column.partition(".")
        batches = file.iter_batches(ROWS_AT_ONCE, columns=[column], use_threads=False)
        return all(batch.column(name).field(inner).null_count == batch.num_rows for batch in batches)

    return is_empty


def _says_nothing(value: Any) -> bool:
    """Whether a `ClassLabel` is -1, Hugging Face's "no label", or a list has nothing else."""
    if isinstance(value, np.ndarray):
        return len(value) > 0 and all(one == UNKNOWN for one in value)
    return isinstance(value, int | float | np.generic) and bool(value == UNKNOWN)


def _named(value: Any, names: list[str], path: Path, column: str) -> Any:
    """The name of a `ClassLabel` or those of a list; -1 means that there is none."""
    if isinstance(value, np.ndarray):
        named = [_named(one, names, path, column) for one in value]
        return [name for name in named if name is not None]
    if value is None or value != value or value == UNKNOWN:
        return None
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if not is_number or not 0 <= value < len(names):
        raise InputError(f"table {path}: column {column!r} holds {value!r}, and has {len(names)} names")
    return names[int(value)]
