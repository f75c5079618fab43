"""A table beside a folder of images: one 0/1 column per label, blank for unknown."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.data.groups import join_groups
from kmcl.data.writers.images import IMAGES, OnImage, written_images
from kmcl.errors import InputError
from kmcl.storage.atomic import write_text

TABLE = "labels.csv"


def write_table_folder(dataset: Dataset, folder: Path, on_image: OnImage | None) -> str:
    has_groups = join_groups(dataset.splits.values()) is not None
    columns = ["image", "split", *(["group"] if has_groups else [])]
    reserved = sorted(set(columns) & {label.lower() for label in dataset.labels})
    if reserved:
        raise InputError(f"a label called {reserved[0]!r} cannot be written to a table; rename it")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*columns, *dataset.labels])
    (folder / IMAGES).mkdir()
    for image in written_images(dataset, on_image):
        path = f"{IMAGES}/{image.name}"
        (folder / path).write_bytes(image.content)
        cells = ("" if value == UNKNOWN else value for value in image.targets.tolist())
        writer.writerow([path, image.split, *([image.group] if has_groups else []), *cells])
    write_text(folder / TABLE, text.getvalue())
    return f"table:{folder / TABLE}"
