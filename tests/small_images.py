"""Small images whose colours differ, written where a test needs them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from kmcl.data import Dataset, Split
from kmcl.data.arrays import ArrayImages


def small_image(number: int) -> Image.Image:
    return Image.new("RGB", (8, 6), (number % 256, number // 256, 77))


def save_small_image(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    small_image(number).save(path)


def small_image_bytes(number: int) -> bytes:
    buffer = BytesIO()
    small_image(number).save(buffer, "PNG")
    return buffer.getvalue()


def one_colour_dataset(
    labels: tuple[str, ...], targets: dict[str, list[list[int]]], *, unknown: bool, groups: bool
) -> Dataset:
    """Images of one colour each, all different; of each split a pair is unknown, an image in a group."""
    splits = {}
    for first, (name, rows) in enumerate(targets.items()):
        pixels = np.full((len(rows), 5, 4, 3), 10 * first, dtype=np.uint8)
        pixels[..., 0] += np.arange(len(rows), dtype=np.uint8)[:, None, None]
        values = np.array(rows, dtype=np.int8)
        if unknown:
            values[0, first - 1] = -1
        names = np.array([f"p{first}", *[""] * (len(rows) - 1)]) if groups else None
        splits[name] = Split(ArrayImages(pixels, name), values, groups=names)
    return Dataset("made", labels, splits)
