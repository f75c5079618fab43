"""A dataset from rows of text: which column is what, the targets, the splits. For files and DataFrames.

Columns `image` (also `path`, `filename`, `image_id`, ...), optional `split` and `group` (also `patient`,
`patient_id`: images of one group are never in two splits); every other column is a label, unless a column
`labels` or several columns `label_1`, `label_2`, ... have their names. If no image is where the table says,
the images are looked for by name below the folder. Without a split column the rows are split by iterative
stratification; with one that has no validation rows, these are taken from the training rows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from kmcl.data.dataset import Dataset, ImageStore, Split
from kmcl.data.files import require_folder
from kmcl.data.image_lookup import FolderIndex, find_images, lookup_notes
from kmcl.data.label_parents import contradictions, read_parents, without_descendants
from kmcl.data.readers.column_advice import column_advice, option_flag
from kmcl.data.readers.name_columns import numbered_columns, targets_from_names
from kmcl.data.readers.options import DrawOptions, Names, folder_of
from kmcl.data.readers.partial_labels import apply_sources, apply_unknown_names, read_sources
from kmcl.data.readers.row_problems import RowError, RowProblem, shown_value
from kmcl.data.readers.split_names import SPLIT_SPELLINGS, given_splits
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.readers.table_targets import LabelTargets, Unlisted, targets_from_columns
from kmcl.data.splitting import draw_splits, finish_splits
from kmcl.errors import InputError, suggest

IMAGE_COLUMNS = (
    *("image", "path", "file", "filename", "file_name", "image_path", "filepath", "image_file", "image_name"),
    *("image_id", "imageid", "image index"),
)
SPLIT_COLUMNS = ("split",)
GROUP_COLUMNS = ("group", "patient", "patient_id", "patientid", "patient id")
NAME_COLUMNS = ("labels", "finding labels")
UNKNOWN_COLUMNS = ("unknown_labels",)
SOURCE_COLUMNS = ("source",)


class ColumnOptions(DrawOptions):
    """Options of anything with columns.

    image_column:   the column of image paths; default `image`, `path`, `file`, `filename` and the like.
    split_column:   the column with train, val or test; default `split` if there is one.
    group_column:   the column of patients or other groups; default `group` or `patient` if there is one.
    label_columns:  the 0/1 columns to use, in order; default all remaining columns.
    ignore_columns: columns that are not labels.
    labels_column:  the column of label names, or several; default `labels`, or `label_1`, `label_2` etc.
    label_names:    with such a column: the labels in order; default all that occur, alphabetically.
    separator:      the separator of label names; default "|", ";" or ",", whichever occurs. Lists need none.
    unlisted:       what a label is that a row does not name, or whose cell is blank: `absent` or `unknown`;
                    default absent for names and where all cells are marks (x), unknown for 0/1 columns.
    unknown_column: the column with the names of labels that were not annotated; default `unknown_labels`.
    sources:        a YAML file with the labels that each source annotates; its other labels are unknown.
    source_column:  with `sources`: the column with the source of each row; default `source`.
    """

    image_column: str | None = None
    split_column: str | None = None
    group_column: str | None = None
    label_columns: Names | None = None
    ignore_columns: Names = ()
    labels_column: Names | None = None
    label_names: Names | None = None
    separator: str | None = Field(default=None, min_length=1)
    unlisted: Unlisted | None = None
    unknown_column: str | None = None
    sources: dict[str, Names] | Path | None = None
    source_column: str | None = None


def dataset_from_rows(
    table: TableRows, options: ColumnOptions, *, name: str, root: Path, allow_outside: bool
) -> Dataset:
    """The dataset called `name`; image paths start from `root`, and leave it only with `allow_outside`."""
    image_column = _image_column(table, options.image_column)
    split_column = _find_column(table, options.split_column, SPLIT_COLUMNS, "split_column")
    group_column = _find_column(table, options.group_column, GROUP_COLUMNS, "group_column")
    others = {image_column, split_column, group_column, *table.stored, *options.ignore_columns}
    labelled = _read_targets(table, options, others)
    if not (labelled.targets == 1).any():
        raise InputError(f"{table.title}: no image carries any label, every target is 0 or unknown")
    images, notes = _images(table, image_column, root, allow_outside)
    notes = labelled.notes + notes
    groups = np.array(table.column(group_column)) if group_column else None
    lines = None if table.path is None else np.array(table.lines, dtype=np.int64)
    everything = Split(images, labelled.targets, groups=groups, lines=lines)
    if split_column is not None:
        splits = _splits_of_column(table, everything, split_column)
    else:
        splits = draw_splits(everything, options)
    return Dataset(name, labelled.labels, finish_splits(splits, options), notes)


def images_of_rows(table: TableRows, root: Path) -> ImageStore:
    """The images of a table, wherever they are and whatever its other columns are."""
    images, _ = _images(table, _image_column(table, None), root, allow_outside=True)
    return images


def _images(
    table: TableRows, column: str, root: Path, allow_outside: bool
) -> tuple[ImageStore, tuple[str, ...]]:
    """The images of a column of paths or of stored images, and notes on how the paths were found."""
    stored = table.stored.get(column)
    if stored is not None:
        return stored, ()
    names = _image_paths(table, column, root, allow_outside)
    index = FolderIndex(root, "-o images=FOLDER" if table.path else "root=FOLDER")
    images = find_images(names, [root], table.path or "the DataFrame", index)
    return images, lookup_notes(names, images)


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
    unknown_column = _find_column(table, options.unknown_column, UNKNOWN_COLUMNS, "unknown_column")
    source_column = None
    if options.sources is not None:
        source_column = _find_column(table, options.source_column, SOURCE_COLUMNS, "source_column")
        if source_column is None:
            raise InputError(f"{table.header_title}: no column 'source'; name it with source_column=...")
    labelled = _read_labels(table, options, others | {unknown_column, source_column})
    if unknown_column is not None:
        labelled = apply_unknown_names(table, labelled, unknown_column)
    if source_column is not None and options.sources is not None:
        sources = read_sources(options.sources, folder_of(table.path))
        labelled = apply_sources(table, labelled, source_column, sources)
    return labelled


def _read_labels(table: TableRows, options: ColumnOptions, others: set[str | None]) -> LabelTargets:
    if options.label_columns:
        _require_columns(table, options.label_columns, "label_columns")
        labelled = targets_from_columns(table, options.label_columns, options.unlisted)
        return _checked_by_parents(table, labelled, options)
    if columns := _name_columns(table, options):
        return targets_from_names(table, columns, options.separator, options.label_names, options.unlisted)
    columns = tuple(name for name in table.header if name not in others)
    if not columns:
        raise InputError(f"{table.header_title}: no label column among {', '.join(table.header)}")
    try:
        labelled = targets_from_columns(table, columns, options.unlisted)
    except RowError as error:
        advice = column_advice(table, error.problems, options.ignore_columns)
        raise error.with_advice(advice) from None
    return _checked_by_parents(table, labelled, options)


def _checked_by_parents(table: TableRows, labelled: LabelTargets, options: ColumnOptions) -> LabelTargets:
    """A 0 in a cell says that a label is absent, which must not contradict what other labels imply.

    Names say only what is present: there `with_parents` fills in what they imply.
    """
    if options.parents is None:
        return labelled
    parents = read_parents(options.parents, folder_of(table.path))
    problems = [
        RowProblem(
            table.lines[found.row],
            f"label {found.label!r} is present and {found.ancestor!r}, which it implies, is absent",
            f"label {found.label!r} is present and {found.ancestor!r}, which it implies, is absent",
        )
        for found in contradictions(labelled.targets, labelled.labels, parents)
    ]
    if problems:
        raise table.row_error(problems)
    return replace(labelled, targets=without_descendants(labelled.targets, labelled.labels, parents))


def _name_columns(table: TableRows, options: ColumnOptions) -> tuple[str, ...]:
    if options.labels_column:
        _require_columns(table, options.labels_column, "labels_column")
        return options.labels_column
    usual = _find_column(table, None, NAME_COLUMNS, "labels_column")
    return numbered_columns(table) if usual is None else (usual,)


def _image_paths(table: TableRows, column: str, root: Path, allow_outside: bool) -> list[str]:
    require_folder(root, "folder of images")
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
    return paths


def _leads_outside(path: str, folders: Iterable[str]) -> bool:
    """Whether a path leaves the folder, which is known by several names."""
    if not os.path.isabs(path):
        return os.path.normpath(path).startswith("..")
    return not any(Path(os.path.normpath(path)).is_relative_to(folder) for folder in folders)


def _splits_of_column(table: TableRows, everything: Split, column: str) -> dict[str, Split]:
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
    return given_splits(everything, names)
