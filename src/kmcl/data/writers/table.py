"""A table beside a folder of images: one 0/1 column per label, blank for unknown."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from kmcl.data.dataset import Dataset
from kmcl.data.table_writing import columns_of_table, row_of_table
from kmcl.data.writers.images import IMAGES, OnImage, written_images
from kmcl.storage.atomic import write_text

TABLE = "labels.csv"


def write_table_folder(dataset: Dataset, folder: Path, on_image: OnImage | None) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = columns_of_table(dataset)
    writer.writerow([*columns, *dataset.labels])
    (folder / IMAGES).mkdir()
    for image in written_images(dataset, on_image):
        path = f"{IMAGES}/{image.name}"
        (folder / path).write_bytes(image.content)
        writer.writerow(row_of_table(columns, path, image.split, image.group, image.targets.tolist()))
    write_text(folder / TABLE, text.getvalue())
    return f"table:{folder / TABLE}"
