"""Writing a dataset of image files as a table that the reader `table:` opens again."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.data.groups import join_groups
from kmcl.errors import InputError
from kmcl.storage.atomic import write_text

IMAGE_COLUMN, SPLIT_COLUMN, GROUP_COLUMN = "image_path", "split", "group"

READER_OPTIONS = {"image_column": IMAGE_COLUMN, "split_column": SPLIT_COLUMN, "allow_outside": True}
"""With which `table:` reads what `write_table` wrote, wherever the images are."""


def write_table(dataset: Dataset, path: Path, images_from: Path | None = None) -> None:
    """One row per image: its path, its split, its group, and 1, 0 or nothing (unknown) for each label.

    The names of the dataset's images must be the paths of their files.

    images_from: a folder; paths of images below it start from there, all others are absolute
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(table_cells(dataset, images_from))
    write_text(path, text.getvalue())


def table_cells(dataset: Dataset, images_from: Path | None = None) -> Iterator[list[str | int]]:
    """The header and the rows of that table."""
    groups = join_groups(dataset.splits.values())
    row_of_table = count()
    columns = [IMAGE_COLUMN, SPLIT_COLUMN, *([GROUP_COLUMN] if groups is not None else [])]
    reserved = sorted({*columns} & set(dataset.labels))
    if reserved:
        raise InputError(f"a label called {reserved[0]!r} cannot be written to a table; rename it")
    folder = None if images_from is None else images_from.absolute()
    yield [*columns, *dataset.labels]
    for name, split in dataset.splits.items():
        for index, targets in enumerate(split.targets.tolist()):
            image = Path(split.images.name(index)).absolute()
            if folder is not None and image.is_relative_to(folder):
                image = image.relative_to(folder)
            group = [] if groups is None else [str(groups[next(row_of_table)])]
            yield [str(image), name, *group, *("" if value == UNKNOWN else value for value in targets)]
