"""Parquet files as rows of text; columns of encoded images, as Hugging Face writes them, become images.

Where the file has Hugging Face's description of its columns, numbers of a `ClassLabel` become their names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from kmcl.data.encoded_images import ParquetImages
from kmcl.data.readers.frame_rows import rows_of_frame
from kmcl.data.readers.table_rows import TableRows
from kmcl.errors import InputError


def read_parquet(path: Path) -> TableRows:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(f"table {path} needs the package pyarrow: pip install 'kmcl[train]'") from None
    try:
        file = pq.ParquetFile(path)
        schema = file.schema_arrow
        # pandas writes an index without a name as a column of this kind.
        header = [name for name in schema.names if not name.startswith("__index_level_")]
        stored = {
            name: ParquetImages(path, column, _group_starts(file))
            for name in header
            if (column := _bytes_column(file, name)) is not None
        }
        # The bytes of all images may exceed memory.
        frame = file.read([name for name in header if name not in stored]).to_pandas(ignore_metadata=True)
    except Exception as error:  # pyarrow's errors have no base but Exception
        raise InputError(f"table {path} is not a readable Parquet file: {error}") from error
    if not file.metadata.num_rows:
        raise InputError(f"table {path} has no rows")
    for name, feature in _features(schema.metadata).items():
        if name in frame.columns and (names := _class_names(feature)):
            frame[name] = [_named(value, names, path, name) for value in frame[name]]
    for name in frame.columns:
        if (kind := schema.field(name).type) and _is_struct(kind, "path"):
            frame[name] = [None if value is None else value["path"] for value in frame[name]]
    for name in stored:
        frame[name] = ""
    rows = rows_of_frame(frame[header], path)
    return TableRows(path, rows.header, rows.rows, rows.lines, stored)


def _group_starts(file: Any) -> np.ndarray[Any, np.dtype[np.int64]]:
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    return np.cumsum([0, *sizes], dtype=np.int64)


def _bytes_column(file: Any, name: str) -> str | None:
    """The column of encoded images in the column `name`; None if there is none or it is empty throughout."""
    import pyarrow as pa

    kind = file.schema_arrow.field(name).type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return name
    if not _is_struct(kind, "bytes"):
        return None
    return None if _is_empty(file, f"{name}.bytes") else f"{name}.bytes"


def _is_struct(kind: Any, inner: str) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind) and kind.get_field_index(inner) >= 0)


def _is_empty(file: Any, column: str) -> bool:
    """Whether the statistics of the file say so: images of a `datasets` column may be paths alone."""
    for group in range(file.num_row_groups):
        part = file.metadata.row_group(group)
        found = [part.column(i) for i in range(part.num_columns) if part.column(i).path_in_schema == column]
        statistics = found[0].statistics if found else None
        if statistics is None or not statistics.has_null_count or statistics.null_count < part.num_rows:
            return False
    return True


def _features(metadata: Mapping[bytes, bytes] | None) -> Mapping[str, Any]:
    try:
        features = json.loads((metadata or {}).get(b"huggingface", b"{}"))["info"]["features"]
    except (ValueError, KeyError, TypeError):
        return {}
    return features if isinstance(features, dict) else {}


def _class_names(feature: Any) -> list[str] | None:
    """The names of a `ClassLabel`, or of a list of them."""
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel":
        names = feature.get("names")
        return [str(name) for name in names] if isinstance(names, list) else None
    return _class_names(feature.get("feature"))


def _named(value: Any, names: list[str], path: Path, column: str) -> Any:
    if isinstance(value, np.ndarray):
        return [_named(one, names, path, column) for one in value]
    if value is None or value != value:
        return None
    if not 0 <= int(value) < len(names):
        raise InputError(f"table {path}: column {column!r} holds {value}, and has {len(names)} names")
    return names[int(value)]
