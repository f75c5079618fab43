"""A dataset from rows of text with a column of images: which column that is, and where the images are.

The column is `image` (also `path`, `filename`, `image_id`, ...). If no image is where the table says, the
images are looked for by name below the folder. The other columns: `kmcl.data.readers.columns`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from kmcl.data.column_names import IMAGE_COLUMNS
from kmcl.data.dataset import Dataset, ImageStore
from kmcl.data.files import require_folder
from kmcl.data.image_lookup import FolderIndex, find_images, lookup_notes
from kmcl.data.readers.column_advice import option_flag
from kmcl.data.readers.columns import LabelColumnOptions, find_column, labelled_dataset, read_targets
from kmcl.data.readers.row_problems import RowProblem, shown_value
from kmcl.data.readers.table_rows import PARQUET_SUFFIXES, TableRows
from kmcl.errors import InputError


class ColumnOptions(LabelColumnOptions):
    """Options of anything with columns of images and labels.

    image_column: the column of image paths; default `image`, `path`, `file`, `filename` and the like.
    """

    image_column: str | None = None


def dataset_from_rows(
    table: TableRows, options: ColumnOptions, *, name: str, root: Path, allow_outside: bool
) -> Dataset:
    """The dataset called `name`; image paths start from `root`, and leave it only with `allow_outside`."""
    image_column = _image_column(table, options.image_column)
    labelled = read_targets(table, options, {image_column, *table.stored})
    images, notes = _images(table, image_column, root, allow_outside)
    return labelled_dataset(table, options, labelled, images, name=name, notes=notes)


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
    column = find_column(table, chosen, IMAGE_COLUMNS, "image_column")
    if column is None and len(table.stored) == 1:
        (column,) = table.stored
    if column is None:
        raise InputError(
            f"{table.header_title}: no column 'image' among {', '.join(table.header)}; "
            f"name the column of image paths with image_column=...{_vectors_advice(table.path)}"
        )
    return column


def _vectors_advice(path: Path | None) -> str:
    is_parquet = path is not None and path.suffix.lower() in PARQUET_SUFFIXES
    return f"; if it has feature vectors instead of images, open it as features:{path}" if is_parquet else ""


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
    advice = f"{option_flag('allow_outside', 'true')} accepts paths outside the folder" if outside else ""
    table.refuse([*problems, *outside], advice)
    if table.refused:  # where the images are must not depend on these
        usable = paths[table.usable_rows()[0]]
        paths = [
            usable if line in table.refused else path for path, line in zip(paths, table.lines, strict=True)
        ]
    return paths


def _leads_outside(path: str, folders: Iterable[str]) -> bool:
    """Whether a path leaves the folder, which is known by several names."""
    if not os.path.isabs(path):
        return ".." in path and os.path.normpath(path).startswith("..")
    return not any(Path(os.path.normpath(path)).is_relative_to(folder) for folder in folders)
