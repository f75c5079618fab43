"""Feature vectors in NumPy files: `np.savez("x.npz", features=..., targets=..., labels=...)`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.readers.feature_file import KIND, VECTOR_NAMES, FeatureFile
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.readers.table_targets import EXPECTED, LabelTargets
from kmcl.data.vectors import Vectors, float_rows
from kmcl.errors import InputError, suggest
from kmcl.storage.archives import ARCHIVE_ERRORS

TARGETS, LABELS = "targets", "labels"
ADVICE = f"; give an array {TARGETS} of rows x labels with 1, 0 or -1, and {LABELS} with their names"

Array = npt.NDArray[Any]


def read_arrays(path: Path, chosen: str | None) -> FeatureFile:
    """The arrays of an .npz file; an .npy file has feature vectors alone.

    chosen: the name of the array of feature vectors, where it was given
    """
    arrays = _load(path)
    name = _vectors_name(path, arrays, chosen)
    rows = float_rows(
        arrays.pop(name), f"features {path}, array {name!r}" if len(arrays) else f"features {path}"
    )
    targets, listed = arrays.pop(TARGETS, None), arrays.pop(LABELS, None)
    if targets is None and listed is not None and len(np.atleast_1d(listed)) == len(rows):
        targets, listed = listed, None  # the names of each row's labels
    names = () if listed is None else _label_names(path, listed)
    columns = {name: array for name, array in arrays.items() if array.shape == (len(rows),)}
    _refuse_other_lengths(path, arrays, len(rows))
    labelled = None
    if targets is not None and targets.dtype.kind in "US":
        if targets.shape != (len(rows),):
            raise InputError(
                f"features {path}: {TARGETS} as text must be one per row, such as 'cat|dog'; got shape "
                f"{targets.shape} for {len(rows)} rows"
            )
        columns[LABELS] = targets
    elif targets is not None:
        labelled = _targets(path, targets, names, rows)
    table = TableRows(
        path,
        tuple(columns),
        [list(cells) for cells in zip(*map(_texts, columns.values()), strict=True)] or [[] for _ in rows],
        list(range(len(rows))),
        kind=KIND,
    )
    return FeatureFile(rows, table, labelled, names if labelled is None else (), ADVICE)


def _load(path: Path) -> dict[str, Array]:
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return {VECTOR_NAMES[0]: content}
        with content:
            return {name: _loaded(path, content, name) for name in content.files}
    except InputError:
        raise
    except (*ARCHIVE_ERRORS, MemoryError) as error:
        raise InputError(f"features {path} cannot be read: {error}") from error


def _loaded(path: Path, content: Mapping[str, Array], name: str) -> Array:
    try:
        return content[name]
    except ValueError as error:
        if "pickle" not in str(error).lower():
            raise
        raise InputError(
            f"features {path}: array {name!r} holds Python objects (dtype object), which are not read; rows "
            "of different lengths give such an array. Lists of label names are written as text, 'cat|dog'"
        ) from None


def _vectors_name(path: Path, arrays: Mapping[str, Array], chosen: str | None) -> str:
    shown = ", ".join(arrays) or "none"
    if chosen is not None:
        if chosen not in arrays:
            hint = suggest(chosen, arrays)
            raise InputError(f"features {path}: has no array {chosen!r}{hint}; there are {shown}")
        return chosen
    by_lower_case = {name.lower(): name for name in reversed(list(arrays))}
    found = next((by_lower_case[name] for name in VECTOR_NAMES if name in by_lower_case), None)
    if found is None:
        raise InputError(f"features {path}: has no array 'features'; there are {shown}")
    return found


def _refuse_other_lengths(path: Path, arrays: Mapping[str, Array], num_rows: int) -> None:
    for name, array in arrays.items():
        if array.ndim == 1 and len(array) != num_rows:
            raise InputError(f"features {path}: array {name!r} has {len(array)} values for {num_rows} rows")


def _label_names(path: Path, listed: Array) -> tuple[str, ...]:
    if listed.ndim != 1 or listed.dtype.kind not in "USiu":
        raise InputError(
            f"features {path}: {LABELS} must be the names of the labels; got {listed.dtype} of shape "
            f"{listed.shape}"
        )
    names = tuple(_texts(listed))
    repeated = [name for name in names if names.count(name) > 1]
    if repeated or not all(names):
        problem = f"{repeated[0]!r} stands twice" if repeated else "one is empty"
        raise InputError(f"features {path}: {LABELS} must be different names; {problem}")
    return names


def _targets(path: Path, targets: Array, names: tuple[str, ...], rows: Vectors) -> LabelTargets:
    if targets.ndim != 2 or len(targets) != len(rows) or targets.shape[1] < 1:
        raise InputError(
            f"features {path}: {TARGETS} must be {len(rows)} rows x labels, one row per feature vector; got "
            f"shape {targets.shape}"
        )
    if targets.dtype.kind not in "fiub":
        raise InputError(f"features {path}: {TARGETS} must be numbers, {EXPECTED}; got {targets.dtype}")
    names = names or tuple(f"label {number}" for number in range(targets.shape[1]))
    if len(names) != targets.shape[1]:
        raise InputError(
            f"features {path}: {LABELS} has {len(names)} names for the {targets.shape[1]} columns of "
            f"{TARGETS}"
        )
    values = np.where(np.isnan(targets), UNKNOWN, targets) if targets.dtype.kind == "f" else targets
    bad = ~np.isin(values, (0, 1, UNKNOWN))
    if bad.any():
        row, column = (int(place) for place in np.argwhere(bad)[0])
        raise InputError(
            f"features {path}: {TARGETS}, row {row}, label {names[column]!r}: {targets[row, column]}, "
            f"expected 1, 0, or -1 for unknown; {int(bad.sum())} values are none of these (rows count from 0)"
        )
    return LabelTargets(names, values.astype(np.int8))


def _texts(values: Array) -> list[str]:
    if values.dtype.kind == "S":
        return [value.decode("utf-8", errors="replace").strip() for value in values.tolist()]
    # NaN is what pandas has where a value is missing.
    return ["" if value != value else str(value).strip() for value in values.tolist()]
