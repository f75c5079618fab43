"""How far a label's score falls when the region that shows another label is covered.

The region is the part of the image that most supports the other label, without the part that supports the
label more than the other one: a rider is not covered with the horse. A label that leans on the other one has
its own support there, so the comparison of the two is what counts. The same image with an equally large part
covered elsewhere is the control: covering anything may change a score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from kmcl.errors import InputError
from kmcl.evaluation.predictions import Mask
from kmcl.evaluation.ranking import Values
from kmcl.explain.evidence import label_evidence
from kmcl.explain.saliency import enlarge
from kmcl.models.classifier import Classifier

COVERED_SHARE = 0.25
"""Of the image. The part that is kept for the label itself is at most as large."""
IMAGES_AT_ONCE = 8

Pixels = npt.NDArray[np.uint8]


class MaskedLogits(NamedTuple):
    """Logits of all labels for P images, P x L each, and the images that gave them.

    clean:   of the image as it is.
    masked:  with the region of the other label covered.
    control: with a random region of the same size covered.
    """

    clean: Values
    masked: Values
    control: Values
    masked_images: Pixels
    control_images: Pixels


def masked_logits(
    classifier: Classifier,
    images: Pixels,
    labels: Sequence[int],
    others: Sequence[int],
    generator: np.random.Generator,
    advance: Callable[[float], object] | None = None,
) -> MaskedLogits:
    """Score each image as it is, without the region of `others[p]`, and without another region.

    images:  P x size x size x 3, at the classifier's own size; one for each pair of labels
    advance: called with the share of the work that is done
    """
    if not len(labels) == len(others) == len(images) or not len(images):
        raise InputError(
            f"labels and others must be one for each of {len(images)} images, at least one; "
            f"got {len(labels)} and {len(others)}"
        )
    masked, control = images.copy(), images.copy()
    logits: list[tuple[Values, Values, Values]] = []
    for start in range(0, len(images), IMAGES_AT_ONCE):
        part = slice(start, start + IMAGES_AT_ONCE)
        found = label_evidence(classifier, images[part], list(zip(labels[part], others[part], strict=True)))
        for index, (own, other) in enumerate(found.heats, start=start):
            side = images.shape[1]
            regions = choose_regions(enlarge(own, side, side), enlarge(other, side, side), generator)
            masked[index] = cover(images[index], regions.other)
            control[index] = cover(images[index], regions.control)
        logits.append((found.logits, _logits(classifier, masked[part]), _logits(classifier, control[part])))
        if advance is not None:
            advance(min(1.0, (start + IMAGES_AT_ONCE) / len(images)))
    clean, without, elsewhere = (np.concatenate(each) for each in zip(*logits, strict=True))
    return MaskedLogits(clean, without, elsewhere, masked, control)


class Regions(NamedTuple):
    """Two parts of an image of the same size that have no pixel in common, H x W each."""

    other: Mask
    control: Mask


def choose_regions(
    own_heat: Values,
    other_heat: Values,
    generator: np.random.Generator,
    share: float = COVERED_SHARE,
) -> Regions:
    """The hottest part of the other label, and a random part; neither where the label is far hotter.

    The random part is where a smooth random map is highest, so that both are few connected patches. Where the
    heat is 0, which part is covered is random too.

    own_heat, other_heat: H x W, of the label and of the other label, each with a highest value of 1
    share:                of the pixels in each of the three parts, at most 1/3
    """
    if not 0 < share <= 1 / 3:
        raise InputError(f"share must be in (0, 1/3], got {share}")
    height, width = own_heat.shape
    count = int(share * height * width)
    noise = enlarge(generator.random((4, 4)), height, width)
    # Random order among equal heats: an even map has no hottest part.
    shaken = other_heat + 1e-6 * enlarge(generator.random((4, 4)), height, width)
    ahead = own_heat - other_heat
    own = _highest(ahead, ahead > 0, count) & (ahead > 0)
    other = _highest(shaken, ~own, count)
    return Regions(other, _highest(noise, ~own & ~other, count))


def cover(image: Pixels, region: Mask) -> Pixels:
    """The image with the region in the mean colour of the image."""
    covered = image.copy()
    covered[region] = np.rint(image.reshape(-1, image.shape[2]).mean(axis=0)).astype(np.uint8)
    return covered


def _highest(values: Values, allowed: Mask, count: int) -> Mask:
    """The `count` allowed pixels with the highest values."""
    order = np.argsort(np.where(allowed, -values, np.inf), axis=None, kind="stable")
    chosen = np.zeros(values.size, dtype=np.bool_)
    chosen[order[:count]] = True
    return chosen.reshape(values.shape)


def _logits(classifier: Classifier, images: Pixels) -> Values:
    with torch.inference_mode():
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
        logits = classifier(pixels.to(next(classifier.parameters()).device)).logits
    return np.asarray(logits.double().cpu().numpy())
