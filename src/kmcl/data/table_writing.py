"""Writing a dataset of image files as a table that the reader `table:` opens again."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

from kmcl.data.column_names import columns_beside
from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.data.groups import join_groups
from kmcl.storage.atomic import write_text

READER_OPTIONS = {"allow_outside": True}
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
    columns = columns_of_table(dataset)
    folder = None if images_from is None else images_from.absolute()
    yield [*columns, *dataset.labels]
    for name, split in dataset.splits.items():
        for index, targets in enumerate(split.targets.tolist()):
            image = Path(split.images.name(index)).absolute()
            if folder is not None and image.is_relative_to(folder):
                image = image.relative_to(folder)
            group = "" if split.groups is None else str(split.groups[index])
            yield row_of_table(columns, str(image), name, group, targets)


def columns_of_table(dataset: Dataset) -> list[str]:
    """Those before the columns of the labels; InputError with a label that cannot be a column."""
    return columns_beside(dataset.labels, join_groups(dataset.splits.values()) is not None)


def row_of_table(
    columns: Sequence[str], image: str, split: str, group: str, targets: Sequence[int]
) -> list[str | int]:
    """The cells of an image."""
    labels = ("" if value == UNKNOWN else value for value in targets)
    return [*(image, split, group)[: len(columns)], *labels]
