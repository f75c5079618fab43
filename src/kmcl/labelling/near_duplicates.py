"""Pairs of images that are nearly the same: copies that were compressed, scaled or brightened."""

from __future__ import annotations

import io
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageEnhance

from kmcl.data.dataset import ImageStore
from kmcl.labelling.image_features import FeatureExtractor, Floats, ImageFeatures, Pixels

SAMPLED_IMAGES = 64
SHARE_FOUND = 0.9
"""Of the copies below: a pair is as similar as so many images are to their own copy."""
SCALE, QUALITY, BRIGHTNESS = 0.75, 60, 1.1
BLOCK = 1024
MOST_PAIRS = 100_000


class NearDuplicate(NamedTuple):
    """Two images, by their places, and the cosine of their features."""

    first: int
    second: int
    similarity: float


def degraded_copy(image: Pixels) -> Pixels:
    """The image at three quarters of its size, a tenth brighter, and compressed as JPEG."""
    picture = Image.fromarray(image)
    size = (max(8, round(SCALE * picture.width)), max(8, round(SCALE * picture.height)))
    changed = ImageEnhance.Brightness(picture.resize(size, Image.Resampling.LANCZOS)).enhance(BRIGHTNESS)
    buffer = io.BytesIO()
    changed.save(buffer, "JPEG", quality=QUALITY)
    return np.array(Image.open(buffer).convert("RGB"))


def similarity_of_copies(
    images: ImageStore, extractor: FeatureExtractor, features: ImageFeatures, seed: int = 0
) -> float:
    """The similarity that `SHARE_FOUND` of the images have to a degraded copy of themselves, or more.

    The encoder and the images decide how similar copies are, so it is measured on some of them.
    """
    places = np.random.default_rng(seed).permutation(len(features.rows))[:SAMPLED_IMAGES]
    pixels = [images.load(int(features.rows[place])) for place in places]
    originals = features.directions_of(extractor.describe_pixels(pixels))
    copies = features.directions_of(extractor.describe_pixels([degraded_copy(image) for image in pixels]))
    return float(np.quantile((originals * copies).sum(axis=1), 1 - SHARE_FOUND))


def find_near_duplicates(directions: Floats, least: float) -> list[NearDuplicate]:
    """All pairs whose similarity is at least `least`, the most similar first."""
    found: list[NearDuplicate] = []
    for start in range(0, len(directions), BLOCK):
        similarities = directions[start : start + BLOCK] @ directions.T
        for row, column in np.argwhere(similarities >= least).tolist():
            if start + row < column:
                found.append(NearDuplicate(start + row, column, float(similarities[row, column])))
        if len(found) > MOST_PAIRS:  # images of one scene: a list of them helps nobody
            break
    return sorted(found, key=lambda pair: -pair.similarity)
