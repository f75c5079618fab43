"""Training augmentations: from images at the working size to augmented images at the encoder's size.

    none     nothing
    light    shifts of up to an eighth of the side: for small images and symbols, which have no mirror image
    medical  small rotation and zoom, brightness and contrast; no flips, since left and right differ
    photo    mild random crop, horizontal flip, colour jitter, a small Cutout in half of the images
    paper    Cutout 0.5, then RandAugment, as in the paper's table (which has no flip)

Each is a function of images and of one row of uniform numbers per image (see `randomness`), so the result for
an image does not depend on the batch or the process it is made in. Images stay uint8 (batch x height x width
x channel); the classifier normalises them on its own device with its encoder's mean and standard deviation.

An augmentation that crops works on images somewhat larger than its result (`working_scale`), so that cropping
does not mean enlarging; decoding and caching produce that working size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F  # noqa: N812
from PIL import Image

from kmcl.data.randaugment import rand_augment

AugmentationName = Literal["paper", "photo", "medical", "light", "none"]
Draws = npt.NDArray[np.float64]
Pixels = npt.NDArray[np.uint8]

# 256 / 224, the field's usual ratio of stored to cropped side.
CROPPED_FROM = 8 / 7


@dataclass(frozen=True)
class Augmentation:
    """The size of the input images relative to the result, and the function applied to a batch of them.

    apply: (B x W x W x 3 uint8, result side S, B x DRAWS_PER_IMAGE uniforms) -> B x S x S x 3 uint8.
    """

    apply: Callable[[Pixels, int, Draws], Pixels]
    working_scale: float = 1.0

    def working_size(self, image_size: int) -> int:
        return round(image_size * self.working_scale)


def resize(image: Pixels, height: int, width: int) -> Pixels:
    """One height x width x 3 image, bilinear with antialiasing.

    Torch's uint8 kernel is 3 to 4 times as fast as Pillow's and equal to 1/255. It is the only torch
    operation in batch preparation: others pass even a single image to torch's thread pool, and waiting for
    those threads takes many times as long as the work itself when the encoder keeps the cores busy.
    """
    planes = torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1)[None]
    resized = F.interpolate(planes, (height, width), mode="bilinear", antialias=True, align_corners=False)
    result: Pixels = resized[0].permute(1, 2, 0).numpy()
    return result


def paper(images: Pixels, image_size: int, draws: Draws) -> Pixels:
    """Cutout of half the side, then RandAugment, in the order of the ASL recipe the paper builds on."""
    results = images.copy()
    cutout(results, draws[:, :5], side=0.5)
    for result, row in zip(results, draws[:, 5:], strict=True):
        result[...] = np.asarray(rand_augment(Image.fromarray(result), row))
    return results


def photo(images: Pixels, image_size: int, draws: Draws) -> Pixels:
    """Crop 50 to 100 % of the area (aspect 4:5 to 5:4), flip half, jitter colours by 20 %, cut out some."""
    results = np.empty((len(images), image_size, image_size, 3), dtype=np.uint8)
    for image, result, row in zip(images, results, draws, strict=True):
        top, left, height, width = crop_box(len(image), row[:4])
        cropped = resize(image[top : top + height, left : left + width], image_size, image_size)
        if row[4] < 0.5:
            cropped = cropped[:, ::-1]
        brightness, contrast, saturation = 0.8 + 0.4 * row[5:8]
        jittered = jitter_colours(Image.fromarray(cropped), brightness, contrast, saturation)
        result[...] = np.asarray(jittered)
    cutout(results, draws[:, 9:14], side=0.25, only=np.flatnonzero(draws[:, 8] < 0.5))
    return results


def medical(images: Pixels, image_size: int, draws: Draws) -> Pixels:
    """Rotate by up to 10 degrees, zoom in by up to 15 % near the middle (one resampling does both), jitter
    brightness and contrast by 15 %."""
    results = np.empty((len(images), image_size, image_size, 3), dtype=np.uint8)
    for image, result, row in zip(images, results, draws, strict=True):
        moved = Image.fromarray(image).transform(
            (image_size, image_size),
            Image.Transform.AFFINE,
            rotation_and_zoom(len(image), image_size, row[:4]),
            Image.Resampling.BILINEAR,
        )
        brightness, contrast = 0.85 + 0.3 * row[4:6]
        result[...] = np.asarray(jitter_colours(moved, brightness, contrast, saturation=1.0))
    return results


def light(images: Pixels, image_size: int, draws: Draws) -> Pixels:
    """Shift by up to an eighth of the side either way; the border is repeated into the gap."""
    most = image_size // 8
    shifts = np.floor(draws[:, :2] * (2 * most + 1)).astype(np.int64) - most
    results = np.empty_like(images)
    for image, result, (down, right) in zip(images, results, shifts, strict=True):
        up, left = max(0, -down), max(0, -right)
        down, right = max(0, down), max(0, right)
        kept = image[up : image_size - down, left : image_size - right]
        body = result[down : image_size - up]
        body[:, right : image_size - left] = kept
        body[:, :right] = kept[:, :1]
        body[:, image_size - left :] = kept[:, -1:]
        result[:down] = body[0]
        result[image_size - up :] = body[-1]
    return results


def none(images: Pixels, image_size: int, draws: Draws) -> Pixels:
    return images


AUGMENTATIONS: dict[AugmentationName, Augmentation] = {
    "paper": Augmentation(paper),
    "photo": Augmentation(photo, CROPPED_FROM),
    "medical": Augmentation(medical, CROPPED_FROM),
    "light": Augmentation(light),
    "none": Augmentation(none),
}


def cutout(images: Pixels, draws: Draws, *, side: float, only: npt.NDArray[np.int64] | None = None) -> None:
    """Cover, in place, a square of `side` of each image with one random colour.

    The centre is uniform over the image and the square is clipped to it, so between a quarter of the square
    and all of it is covered. draws: B x 5 (vertical and horizontal position, three colour values).
    """
    extent = images.shape[1]
    length = int(side * extent + 0.5)
    starts = np.floor(draws[:, :2] * extent).astype(np.int64) - length // 2
    colours = np.floor(draws[:, 2:5] * 256).astype(np.uint8)
    for number in range(len(images)) if only is None else only:
        top, left = (max(0, int(start)) for start in starts[number])
        bottom, right = (max(0, int(start) + length) for start in starts[number])
        images[number, top:bottom, left:right] = colours[number]


def crop_box(side: int, draws: Draws) -> tuple[int, int, int, int]:
    """(top, left, height, width) of 50 to 100 % of a square's area with an aspect from 4:5 to 5:4."""
    area = 0.5 + 0.5 * float(draws[0])
    stretch = math.exp(0.5 * math.log(1.25) * (2 * float(draws[1]) - 1))
    height = min(side, max(1, round(side * math.sqrt(area) * stretch)))
    width = min(side, max(1, round(side * math.sqrt(area) / stretch)))
    top = int(float(draws[2]) * (side - height + 1))
    left = int(float(draws[3]) * (side - width + 1))
    return top, left, height, width


def rotation_and_zoom(
    side: int, image_size: int, draws: Draws
) -> tuple[float, float, float, float, float, float]:
    """Coefficients (a, b, c, d, e, f) that map a pixel (x, y) of the result to (ax + by + c, dx + ey + f).

    draws: angle within 10 degrees, extent 85 to 100 % of the side, centre such that the unrotated window
    stays inside.
    """
    angle = math.radians(10.0 * (2 * draws[0] - 1))
    extent = side * (1.0 - 0.15 * draws[1])
    centre_x, centre_y = side / 2 + (side - extent) / 2 * (2 * draws[2:4] - 1)
    cos, sin = (extent / image_size * ratio for ratio in (math.cos(angle), math.sin(angle)))
    half = image_size / 2
    return cos, sin, centre_x - half * (cos + sin), -sin, cos, centre_y - half * (cos - sin)


def jitter_colours(image: Image.Image, brightness: float, contrast: float, saturation: float) -> Image.Image:
    """Scale saturation (about each pixel's grey), then contrast (about middle grey), then brightness.

    With gains b, c, s and the grey g = 0.299 R + 0.587 G + 0.114 B of its pixel, a value x becomes

        b (c (s x + (1 - s) g - 127.5) + 127.5),

    clipped to 0..255: one linear map of the three channels.
    """
    own = brightness * contrast * saturation
    red, green, blue = (brightness * contrast * (1 - saturation) * share for share in (0.299, 0.587, 0.114))
    offset = brightness * 127.5 * (1 - contrast)
    return image.convert(
        "RGB",
        (
            red + own, green, blue, offset,
            red, green + own, blue, offset,
            red, green, blue + own, offset,
        ),
    )  # fmt: skip
