"""Thumbnails, small enough for hundreds of them in a page."""

from __future__ import annotations

import io

import numpy as np
import numpy.typing as npt
from PIL import Image

from kmcl.reports.blocks import Thumbnail
from kmcl.reports.run_parts import RunParts

SIDE = 128
"""Pixels of a thumbnail's longer side."""

Pixels = npt.NDArray[np.uint8]


def encode(pixels: Pixels, side: int = SIDE, quality: int = 80) -> bytes:
    """An RGB image as JPEG, its longer side `side` pixels; small ones are enlarged without smoothing."""
    image = Image.fromarray(pixels)
    scale = side / max(image.size)
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    kind = Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS
    buffer = io.BytesIO()
    image.resize(size, kind).save(buffer, "JPEG", quality=quality, optimize=True)
    return buffer.getvalue()


def image_thumbnail(run: RunParts, name: str, caption: str, alt: str) -> Thumbnail:
    """An image of the run's reported split; without pixels if it cannot be read."""
    pixels = run.load_image(name, SIDE)
    return Thumbnail(None if pixels is None else encode(pixels), alt, caption)


def short_name(name: str, length: int = 26) -> str:
    """The end of an image's name, which identifies it within its folder."""
    name = name.rsplit("/", 1)[-1]
    return name if len(name) <= length else "…" + name[1 - length :]
