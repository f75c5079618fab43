"""Pairs of images that are nearly the same: copies that were compressed, scaled or brightened."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageEnhance

from kmcl.data.dataset import ImageStore
from kmcl.data.vectors import feature_dim_of
from kmcl.labelling.image_features import FeatureExtractor, Floats, ImageFeatures, Pixels

SAMPLED_IMAGES = 64
SHARE_FOUND = 0.9
"""Of the copies below: a pair is as similar as so many images are to their own copy."""
SCALE, QUALITY, BRIGHTNESS = 0.75, 60, 1.1
VECTOR_SIMILARITY = 0.98
BLOCK = 1024
MOST_SHARE, ALWAYS_ALLOWED = 0.05, 50
"""Of the images, and images, that may have a near-duplicate: features that find more of them cannot tell
copies from other images that look alike, such as X-rays of one patient.
"""


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

    Of feature vectors, which have no such copies, `VECTOR_SIMILARITY`.
    The encoder and the images decide how similar copies are, so it is measured on some of them.
    """
    if feature_dim_of(images) is not None:
        return VECTOR_SIMILARITY
    places = np.random.default_rng(seed).permutation(len(features.rows))[:SAMPLED_IMAGES]
    pixels = [images.load(int(features.rows[place])) for place in places]
    originals = features.directions_of(extractor.describe_pixels(pixels))
    copies = features.directions_of(extractor.describe_pixels([degraded_copy(image) for image in pixels]))
    return float(np.quantile((originals * copies).sum(axis=1), 1 - SHARE_FOUND))


def find_near_duplicates(directions: Floats, least: float) -> list[NearDuplicate]:
    """The pairs whose similarity is at least `least`, the most similar first.

    Where more than `MOST_SHARE` of the images have such a partner, only those with the most similar ones.
    """
    nearest = np.sort(np.concatenate([block.max(axis=1) for _, block in _similarities(directions)]))
    allowed = max(ALWAYS_ALLOWED, round(MOST_SHARE * len(nearest)))
    if allowed < len(nearest):
        least = max(least, float(nearest[-allowed]))
    found = [
        NearDuplicate(start + row, column, float(block[row, column]))
        for start, block in _similarities(directions)
        for row, column in np.argwhere(block >= least).tolist()
        if start + row < column
    ]
    return sorted(found, key=lambda pair: -pair.similarity)


def _similarities(directions: Floats) -> Iterator[tuple[int, Floats]]:
    """Of some rows, from the number of the first, to all; -1 of each row to itself."""
    for start in range(0, len(directions), BLOCK):
        block = directions[start : start + BLOCK] @ directions.T
        rows = np.arange(len(block))
        block[rows, start + rows] = -1.0
        yield start, block
