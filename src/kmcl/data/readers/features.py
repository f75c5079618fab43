"""Feature vectors with labels: embeddings of text, sound or images, computed elsewhere. NumPy or Parquet.

    features:FILE.npz       features N x D; targets N x L (1, 0, -1 unknown) with labels, their L names, or N
                            texts "cat|dog"; and of N values each, if there are such: split, group, ids
    features:FILE.parquet   a column of lists of D numbers, or D columns x0, x1, ...; others as in a table

What the other columns are: `kmcl.data.readers.columns`. Every other array of N values in an .npz file is such
a column.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kmcl.data.column_names import IMAGE_COLUMNS
from kmcl.data.dataset import Dataset
from kmcl.data.files import require_file
from kmcl.data.readers.columns import LabelColumnOptions, find_column, labelled_dataset, read_targets
from kmcl.data.readers.feature_arrays import read_arrays
from kmcl.data.readers.feature_columns import read_columns
from kmcl.data.readers.feature_file import FeatureFile
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.row_problems import RowProblem
from kmcl.data.readers.table_rows import PARQUET_SUFFIXES
from kmcl.data.vectors import FeatureVectors
from kmcl.errors import InputError

ARRAY_SUFFIXES = (".npz", ".npy")
ID_COLUMNS = ("id", "ids", "key", "name", *IMAGE_COLUMNS, "text", "sentence", "title")


class FeatureOptions(LabelColumnOptions):
    """Options of `features:`, besides those of its label columns.

    features_column: the column or array of feature vectors; default `features`, `embedding`, `vector` and the
                     like, or the only column of lists of numbers.
    features_prefix: what the names of D columns of numbers begin with; default the only such beginning.
    id_column:       the column that names the rows; default `id`, `name`, `image`, `text` and the like.
    """

    features_column: str | None = None
    features_prefix: str | None = None
    id_column: str | None = None


def read_features(path: Path, options: FeatureOptions) -> Dataset:
    """Read a file of feature vectors with labels; see the module's description of the format."""
    file = _read(path, options)
    known = {name.lower(): name for name in file.table.header}
    others = {known[name] for name in ID_COLUMNS if name in known} | {options.id_column or ""}
    if options.label_columns and file.targets is not None:
        raise InputError(f"features {path}: label_columns is for columns, and its targets are one array")
    if file.targets is None and not set(file.table.header) - others:
        raise InputError(f"features {path}: has no labels{file.label_advice}")
    if file.label_names and options.label_names is None:
        options = options.model_copy(update={"label_names": file.label_names})
    labelled = read_targets(file.table, options, others, file.targets)
    vectors = _vectors(file, path, options.id_column)
    return labelled_dataset(file.table, options, labelled, vectors, name=path.stem)


def vectors_of_file(path: Path) -> FeatureVectors:
    """The feature vectors of a file in their order, whatever else it has."""
    return _vectors(_read(path, FeatureOptions()), path, None)


def _read(path: Path, options: FeatureOptions) -> FeatureFile:
    require_file(path, "features")
    suffix = path.suffix.lower()
    if suffix in ARRAY_SUFFIXES:
        return read_arrays(path, options.features_column)
    if suffix in PARQUET_SUFFIXES:
        return read_columns(path, options.features_column, options.features_prefix)
    known = ", ".join((*ARRAY_SUFFIXES, *PARQUET_SUFFIXES))
    raise InputError(
        f"features {path}: must be a NumPy or Parquet file ({known}); got {suffix or 'no ending'!r}"
    )


def _vectors(file: FeatureFile, path: Path, id_column: str | None) -> FeatureVectors:
    column = find_column(file.table, id_column, ID_COLUMNS, "id_column")
    if column is None:
        return FeatureVectors(file.rows, path.name)
    names = file.table.column(column)
    empty = [RowProblem(row, f"column {column!r} names no row") for row, name in enumerate(names) if not name]
    file.table.refuse(empty)
    return FeatureVectors(file.rows, path.name, np.array(names))


READER = Reader(read_features, FeatureOptions, place="an .npz or Parquet file", gives_vectors=True)
