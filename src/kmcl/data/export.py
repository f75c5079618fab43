"""Writing any dataset as what people have: a folder of image files and a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.errors import InputError
from kmcl.storage.atomic import write_text

TABLE = "labels.csv"
IMAGES = "images"


def export_dataset(dataset: Dataset, folder: Path, on_image: Callable[[int], object] | None = None) -> Path:
    """Write its images as PNG and a table beside them, which `table:` opens; returns the table's path.

    on_image: called with 1 after each image
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: exists and is not empty; choose another folder")
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["image", "split", *dataset.labels])
    try:
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        for name, split in dataset.splits.items():
            for index, targets in enumerate(split.targets.tolist()):
                path = f"{IMAGES}/{name}-{index:05d}.png"
                Image.fromarray(split.images.load(index)).save(folder / path)
                writer.writerow([path, name, *("" if value == UNKNOWN else value for value in targets)])
                if on_image is not None:
                    on_image(1)
        write_text(folder / TABLE, text.getvalue())
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return folder / TABLE
