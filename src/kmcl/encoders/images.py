"""The images an encoder takes: their size and channels, and the normalisation of their pixels."""

from __future__ import annotations

from collections.abc import Sequence

from kmcl.errors import InputError

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "check_image_shape", "values_per_channel"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def check_image_shape(in_channels: int, image_size: int | None) -> None:
    if in_channels not in (1, 3):
        raise InputError(f"in_channels must be 3 (colour) or 1 (grey), got {in_channels}.")
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be positive, got {image_size}.")


def values_per_channel(values: Sequence[float], in_channels: int) -> tuple[float, ...]:
    """A mean or standard deviation of colours, or their average where images are grey."""
    colours = tuple(float(value) for value in values)
    return colours if in_channels == len(colours) else (sum(colours) / len(colours),)
