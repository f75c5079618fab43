"""RandAugment (Cubuk et al., 2020) with the operations and ranges of the paper's hyper-parameter table.

The table gives the ranges and leaves open how many operations are applied, how strongly, in which direction,
and what fills the uncovered corners. Here: two operations (RandAugment's usual N), drawn independently and
uniformly from the fourteen and always applied; the strength of each uniform over its range; either direction
with equal probability where the operation has two; bilinear interpolation; middle grey for uncovered pixels.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageEnhance, ImageOps

NUM_OPERATIONS = 2
DRAWS_PER_OPERATION = 3

MAX_SHEAR = 0.3
MAX_TRANSLATION = 150 / 331
MAX_ROTATION_DEGREES = 30.0
MAX_ENHANCEMENT = 0.9
FILL = (128, 128, 128)

# (image, strength in [0, 1), direction -1 or +1) -> image
Operation = Callable[[Image.Image, float, int], Image.Image]


def _affine(image: Image.Image, coefficients: tuple[float, float, float, float, float, float]) -> Image.Image:
    return image.transform(
        image.size, Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR, fillcolor=FILL
    )


def shear_x(image: Image.Image, strength: float, direction: int) -> Image.Image:
    slope = direction * MAX_SHEAR * strength
    return _affine(image, (1, slope, -slope * image.height / 2, 0, 1, 0))


def shear_y(image: Image.Image, strength: float, direction: int) -> Image.Image:
    slope = direction * MAX_SHEAR * strength
    return _affine(image, (1, 0, 0, slope, 1, -slope * image.width / 2))


def translate_x(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return _affine(image, (1, 0, direction * MAX_TRANSLATION * strength * image.width, 0, 1, 0))


def translate_y(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return _affine(image, (1, 0, 0, 0, 1, direction * MAX_TRANSLATION * strength * image.height))


def rotate(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return image.rotate(
        direction * MAX_ROTATION_DEGREES * strength, Image.Resampling.BILINEAR, fillcolor=FILL
    )


def color(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return ImageEnhance.Color(image).enhance(1 + direction * MAX_ENHANCEMENT * strength)


def contrast(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(1 + direction * MAX_ENHANCEMENT * strength)


def sharpness(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return ImageEnhance.Sharpness(image).enhance(1 + direction * MAX_ENHANCEMENT * strength)


def brightness(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(1 + direction * MAX_ENHANCEMENT * strength)


def posterize(image: Image.Image, strength: float, direction: int) -> Image.Image:
    """Keep 8 bits per channel at strength 0, down to 4 at full strength."""
    return ImageOps.posterize(image, 8 - round(4 * strength))


def solarize(image: Image.Image, strength: float, direction: int) -> Image.Image:
    """Invert the values above a threshold that falls from 256 (none) to 0 (all)."""
    return ImageOps.solarize(image, round(256 * (1 - strength)))


def auto_contrast(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return ImageOps.autocontrast(image)


def equalize(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return ImageOps.equalize(image)


def invert(image: Image.Image, strength: float, direction: int) -> Image.Image:
    return ImageOps.invert(image)


OPERATIONS: tuple[Operation, ...] = (
    shear_x,
    shear_y,
    translate_x,
    translate_y,
    rotate,
    color,
    posterize,
    solarize,
    contrast,
    sharpness,
    brightness,
    auto_contrast,
    equalize,
    invert,
)


def rand_augment(image: Image.Image, draws: npt.NDArray[np.float64]) -> Image.Image:
    """Apply `NUM_OPERATIONS` random operations; three uniform numbers each give operation, strength and
    direction.

    draws: at least NUM_OPERATIONS * DRAWS_PER_OPERATION numbers in [0, 1).
    """
    for number in range(NUM_OPERATIONS):
        which, strength, way = draws[DRAWS_PER_OPERATION * number : DRAWS_PER_OPERATION * (number + 1)]
        operation = OPERATIONS[int(which * len(OPERATIONS))]
        image = operation(image, float(strength), 1 if way < 0.5 else -1)
    return image
