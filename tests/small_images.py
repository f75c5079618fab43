"""Small images whose colours differ, written where a test needs them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from PIL import Image


def small_image(number: int) -> Image.Image:
    return Image.new("RGB", (8, 6), (number % 256, number // 256, 77))


def save_small_image(path: Path, number: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    small_image(number).save(path)


def small_image_bytes(number: int) -> bytes:
    buffer = BytesIO()
    small_image(number).save(buffer, "PNG")
    return buffer.getvalue()
