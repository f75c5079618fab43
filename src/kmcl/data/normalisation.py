"""The images an encoder takes: their channels, and the mean and standard deviation of their pixels."""

from __future__ import annotations

import math
from collections.abc import Sequence

from kmcl.errors import InputError, suggest

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

IDENTITY = "identity"
"""Name of the encoder of feature vectors, which stand in the place of images."""

NORMALISATIONS = ("encoder", "imagenet", "dataset")
"""Normalisations by name; any other is given as numbers."""


def check_image_shape(in_channels: int, image_size: int | None) -> None:
    if in_channels not in (1, 3):
        raise InputError(f"in_channels must be 3 (colour) or 1 (grey), got {in_channels}.")
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be positive, got {image_size}.")


def values_per_channel(values: Sequence[float], in_channels: int) -> tuple[float, ...]:
    """A mean or standard deviation of colours, or their average where images are grey."""
    colours = tuple(float(value) for value in values)
    return colours if in_channels == len(colours) else (sum(colours) / len(colours),)


def parse_normalisation(text: str) -> tuple[float, ...]:
    """The numbers of a normalisation, a mean and a std or three of each; none for `NORMALISATIONS`."""
    if text in NORMALISATIONS:
        return ()
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if len(numbers) not in (2, 6):
        raise InputError(
            f"normalisation must be {', '.join(NORMALISATIONS)}, or MEAN,STD as two numbers or six (three "
            f"means, three stds), of pixels between 0 and 1; got {text!r}{suggest(text, NORMALISATIONS)}"
        )
    stds = numbers[len(numbers) // 2 :]
    if not all(map(math.isfinite, numbers)) or not all(std > 0 for std in stds):
        raise InputError(f"normalisation must be of finite means and stds above 0; got {text!r}")
    return numbers
