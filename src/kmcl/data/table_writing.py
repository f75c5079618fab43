"""Writing a dataset of image files as a table that the reader `table:` opens again."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.errors import InputError
from kmcl.storage.atomic import write_text

IMAGE_COLUMN, SPLIT_COLUMN = "image_path", "split"

READER_OPTIONS = {"image_column": IMAGE_COLUMN, "split_column": SPLIT_COLUMN, "allow_outside": True}
"""With which `table:` reads what `write_table` wrote: image paths are absolute."""


def write_table(dataset: Dataset, path: Path) -> None:
    """One row per image: its absolute path, its split, and 1, 0 or nothing (unknown) for each label.

    The names of the dataset's images must be the paths of their files.
    """
    reserved = sorted({IMAGE_COLUMN, SPLIT_COLUMN} & set(dataset.labels))
    if reserved:
        raise InputError(f"a label called {reserved[0]!r} cannot be written to a table; rename it")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([IMAGE_COLUMN, SPLIT_COLUMN, *dataset.labels])
    for name, split in dataset.splits.items():
        for index, targets in enumerate(split.targets.tolist()):
            image = Path(split.images.name(index)).absolute()
            writer.writerow([image, name, *("" if value == UNKNOWN else value for value in targets)])
    write_text(path, text.getvalue())
