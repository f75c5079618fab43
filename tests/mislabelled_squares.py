"""A table of images with a green or a red square, or both, some of whose labels are wrong."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

from PIL import Image

from coloured_squares import squares
from kmcl.data import Dataset

NUM_OF_A_KIND = 30
MISSING_GREEN, WRONG_RED = "003.png", "035.png"
"""The first shows green, the second does not show red; the table says otherwise."""
COPY, COPIED = "120.png", "070.png"
"""The first is a copy of the second, with another label."""


def write_squares(folder: Path) -> Path:
    """Images 0 to 59 show green, to 89 red, to 119 both; returns the table's path."""
    (folder / "images").mkdir()
    rows: dict[str, list[str | int]] = {}
    for kind, (green, red) in enumerate([(1, 0), (1, 0), (0, 1), (1, 1)]):
        for image in squares(NUM_OF_A_KIND, bool(green), bool(red), seed=kind)[0]:
            name = f"{len(rows):03d}.png"
            Image.fromarray(image).save(folder / "images" / name)
            rows[name] = [f"images/{name}", "train" if len(rows) % 3 else "test", green, red]
    rows[MISSING_GREEN][2] = 0
    rows[WRONG_RED][3] = 1
    rows[COPY] = [f"images/{COPY}", "val", 1, 1]
    shutil.copy(folder / "images" / COPIED, folder / "images" / COPY)
    with (folder / "labels.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "split", "green", "red"], *rows.values()])
    return folder / "labels.csv"


def row_of(dataset: Dataset, name: str) -> int:
    """The place of an image among those of all splits."""
    names = [split.images.name(row) for split in dataset.splits.values() for row in range(len(split))]
    return next(row for row, one in enumerate(names) if one.endswith(name))
