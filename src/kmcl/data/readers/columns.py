"""A dataset from rows of text: which column is what, the targets, the splits. For files and DataFrames.

Columns `image` (also `path`, `file`, `filename`), optional `split` and `group` (also `patient`, `patient_id`:
images of one group are never in two splits); every other column is a label, unless a column `labels` has
their names. Without a split column the rows are split by iterative stratification; with one that has no
validation rows, these are taken from the training rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kmcl.data.dataset import SPLIT_NAMES, Dataset, ImageStore, Split
from kmcl.data.files import ImageFiles, require_folder, require_some_images
from kmcl.data.readers.column_advice import column_advice, option_flag
from kmcl.data.readers.options import CutOptions, Names
from kmcl.data.readers.row_problems import RowError, RowProblem, shown_value
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.readers.table_targets import LabelTargets, targets_from_columns, targets_from_names
from kmcl.data.selection import select
from kmcl.data.splitting import cut_split, finish_splits
from kmcl.errors import InputError, suggest

IMAGE_COLUMNS = ("image", "path", "file", "filename", "file_name", "image_path", "filepath")
SPLIT_COLUMNS = ("split",)
GROUP_COLUMNS = ("group", "patient", "patient_id", "patientid")
NAME_COLUMNS = ("labels",)

SPLIT_SPELLINGS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


class ColumnOptions(CutOptions):
    """Options of anything with columns.

    image_column:   the column of image paths; default `image`, `path`, `file`, `filename` and the like.
    split_column:   the column with train, val or test; default `split` if there is one.
    group_column:   the column of patients or other groups; default `group` or `patient` if there is one.
    label_columns:  the 0/1 columns to use, in order; default all remaining columns.
    ignore_columns: columns that are not labels.
    labels_column:  the column of label names; default `labels` if there is one.
    label_names:    with such a column: the labels in order; default all that occur, alphabetically.
    separator:      the separator of label names; default "|", ";" or ",", whichever occurs. Lists need none.
    test_fraction:  the share of the rows for `test` if there is no split column.
    """

    image_column: str | None = None
    split_column: str | None = None
    group_column: str | None = None
    label_columns: Names | None = None
    ignore_columns: Names = ()
    labels_column: str | None = None
    label_names: Names | None = None
    separator: str | None = Field(default=None, min_length=1)
    test_fraction: float = Field(default=0.2, ge=0.0, lt=1.0)


def dataset_from_rows(
    table: TableRows, options: ColumnOptions, *, name: str, root: Path, allow_outside: bool
) -> Dataset:
    """The dataset called `name`; image paths start from `root`, and leave it only with `allow_outside`."""
    image_column = _image_column(table, options.image_column)
    split_column = _find_column(table, options.split_column, SPLIT_COLUMNS, "split_column")
    group_column = _find_column(table, options.group_column, GROUP_COLUMNS, "group_column")
    others = {image_column, split_column, group_column, *table.stored, *options.ignore_columns}
    labelled = _read_targets(table, options, others)
    images = _images(table, image_column, root, allow_outside)
    groups = np.array(table.column(group_column)) if group_column else None
    lines = None if table.path is None else np.array(table.lines, dtype=np.int64)
    everything = Split(images, labelled.targets, groups=groups, lines=lines)
    if split_column is not None:
        splits = _given_splits(table, everything, split_column)
    else:
        splits = _drawn_splits(everything, options)
    return Dataset(name, labelled.labels, finish_splits(splits, options))


def images_of_rows(table: TableRows, root: Path) -> ImageStore:
    """The images of a table, wherever they are and whatever its other columns are."""
    return _images(table, _image_column(table, None), root, allow_outside=True)


def _images(table: TableRows, column: str, root: Path, allow_outside: bool) -> ImageStore:
    stored = table.stored.get(column)
    return _image_files(table, column, root, allow_outside) if stored is None else stored


def _image_column(table: TableRows, chosen: str | None) -> str:
    column = _find_column(table, chosen, IMAGE_COLUMNS, "image_column")
    if column is None and len(table.stored) == 1:
        (column,) = table.stored
    if column is None:
        raise InputError(
            f"{table.header_title}: no column 'image' among {', '.join(table.header)}; "
            "name the column of image paths with image_column=..."
        )
    return column


def _find_column(table: TableRows, chosen: str | None, usual: Sequence[str], option: str) -> str | None:
    if chosen is not None:
        _require_columns(table, [chosen], option)
        return chosen
    by_lower_case = {name.lower(): name for name in reversed(table.header)}
    return next((by_lower_case[name] for name in usual if name in by_lower_case), None)


def _require_columns(table: TableRows, names: Iterable[str], option: str) -> None:
    for name in names:
        if name not in table.header:
            raise InputError(
                f"{table.header_title}: no column {name!r} (asked for by {option})"
                f"{suggest(name, table.header)}; there are {', '.join(table.header)}"
            )


def _read_targets(table: TableRows, options: ColumnOptions, others: set[str | None]) -> LabelTargets:
    _require_columns(table, options.ignore_columns, "ignore_columns")
    if options.label_columns:
        _require_columns(table, options.label_columns, "label_columns")
        labelled = targets_from_columns(table, options.label_columns)
    elif column := _find_column(table, options.labels_column, NAME_COLUMNS, "labels_column"):
        labelled = targets_from_names(table, column, options.separator, options.label_names)
    else:
        columns = [name for name in table.header if name not in others]
        if not columns:
            raise InputError(f"{table.header_title}: no label column among {', '.join(table.header)}")
        try:
            labelled = targets_from_columns(table, columns)
        except RowError as error:
            advice = column_advice(table, error.problems, options.ignore_columns)
            raise error.with_advice(advice) from None
    if not (labelled.targets == 1).any():
        raise InputError(f"{table.title}: no image carries any label, every target is 0 or unknown")
    return labelled


def _image_files(table: TableRows, column: str, root: Path, allow_outside: bool) -> ImageStore:
    require_folder(root, "folder of images")
    images = ImageFiles(root, _image_paths(table, column, root, allow_outside))
    require_some_images(images, table.path or "the DataFrame")
    return images


def _image_paths(table: TableRows, column: str, root: Path, allow_outside: bool) -> npt.NDArray[np.str_]:
    # Tables written on Windows have backslashes.
    paths = [cell.replace("\\", "/") for cell in table.column(column)]
    # With links in it, the folder has two names, and a table may have either.
    folders = {os.path.abspath(root), os.path.realpath(root)}
    problems = []
    outside = []
    for path, line in zip(paths, table.lines, strict=True):
        if not path:
            problems.append(RowProblem(line, f"column {column!r} names no image"))
        elif "\0" in path:
            problems.append(RowProblem(line, f"column {column!r} holds a path with a null character"))
        elif not allow_outside and _leads_outside(path, folders):
            message = f"image path {shown_value(path)} leads outside the folder {root}"
            outside.append(RowProblem(line, message, f"image paths lead outside the folder {root}", path))
    if problems or outside:
        advice = f"{option_flag('allow_outside', 'true')} accepts such paths" if outside else ""
        raise table.row_error([*problems, *outside], advice)
    return np.array(paths)


def _leads_outside(path: str, folders: Iterable[str]) -> bool:
    """Whether a path leaves the folder, which is known by several names."""
    if not os.path.isabs(path):
        return os.path.normpath(path).startswith("..")
    return not any(Path(os.path.normpath(path)).is_relative_to(folder) for folder in folders)


def _given_splits(table: TableRows, everything: Split, column: str) -> dict[str, Split]:
    names = []
    problems = []
    for cell, line in zip(table.column(column), table.lines, strict=True):
        name = SPLIT_SPELLINGS.get(cell.lower())
        if name is None:
            near = suggest(cell, SPLIT_SPELLINGS)
            message = f"column {column!r} holds {shown_value(cell)}{near}, expected train, val or test"
            kind = f"column {column!r} holds values other than train, val and test"
            problems.append(RowProblem(line, message, kind, cell))
        else:
            names.append(name)
    if problems:
        raise table.row_error(problems)
    assigned = np.array(names)
    rows = {name: np.flatnonzero(assigned == name) for name in SPLIT_NAMES}
    return {name: select(everything, indices) for name, indices in rows.items() if len(indices)}


def _drawn_splits(everything: Split, options: ColumnOptions) -> dict[str, Split]:
    train_fraction = 1 - options.val_fraction - options.test_fraction
    if train_fraction <= 0:
        raise InputError(
            f"val_fraction={options.val_fraction} and test_fraction={options.test_fraction} leave no "
            "training images"
        )
    fractions = {"train": train_fraction, "val": options.val_fraction, "test": options.test_fraction}
    wanted = {name: fraction for name, fraction in fractions.items() if fraction > 0}
    parts = dict(zip(wanted, cut_split(everything, list(wanted.values()), options.seed), strict=True))
    empty = [name for name, part in parts.items() if not len(part)]
    if empty:
        raise InputError(
            f"{len(everything)} rows are too few for a split {empty[0]!r} of {wanted[empty[0]]:.0%}; "
            f"give {empty[0]}_fraction=0 or a split column"
        )
    return parts
