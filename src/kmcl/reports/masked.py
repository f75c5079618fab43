"""Which labels of a run are tested by covering their co-occurring label, on which images, and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from kmcl.data.augmentation import resize
from kmcl.evaluation.contrasts import MIN_UNITS, Difference, joint_level, mean_difference
from kmcl.evaluation.leaning import LabelLeaning, LabelPair
from kmcl.evaluation.ranking import Values
from kmcl.explain.masking import Pixels, masked_logits
from kmcl.reports.measured import Measured

IMAGES_PER_LABEL = 12


class MaskedExample(NamedTuple):
    """One image, as it is, with the other label's region covered, and with another region covered."""

    name: str
    images: tuple[Pixels, Pixels, Pixels]
    probabilities: tuple[float, float, float]


class MaskedLabel(NamedTuple):
    """Means over the images of one label; falls are of calibrated probabilities.

    fall:         of the label when the region of the other label is covered.
    control_fall: of the label when another region of the same size is covered.
    other_fall:   of the other label when its region is covered.
    difference:   fall minus control_fall, paired by image; None with too few images.
    """

    pair: LabelPair
    num_images: int
    fall: float
    control_fall: float
    other_fall: float
    difference: Difference | None
    example: MaskedExample


def mask_labels(
    one: Measured,
    leanings: Sequence[LabelLeaning],
    num_masked: int,
    seed: int,
    advance: Callable[[float], object],
) -> list[MaskedLabel]:
    """The labels whose decisions depend most on the co-occurring label, those that fall most first.

    num_masked: images in all; IMAGES_PER_LABEL for each label
    """
    classifier, description = one.run.classifier, one.run.description
    if not num_masked or classifier is None or description is None or one.run.images is None:
        return []
    generator = np.random.default_rng(seed)
    chosen = _choose(one, leanings, num_masked, generator)
    size = classifier.encoder.input_size
    loaded: list[tuple[LabelPair, int, Pixels]] = []
    for pair, rows in chosen:
        for row in rows:
            image = one.run.load_image(one.predictions.names[row], size)
            if image is not None:
                loaded.append((pair, row, resize(np.array(image), size, size)))
    if not loaded:
        return []
    pairs = [pair for pair, _, _ in loaded]
    images = np.stack([image for _, _, image in loaded])
    labels, others = [pair.label for pair in pairs], [pair.other for pair in pairs]
    logits = masked_logits(classifier, images, labels, others, generator, advance)
    # P x 3 x L: as it is, the other label covered, another region covered.
    probabilities = np.stack([description.rules.calibrate(each) for each in logits[:3]], axis=1)
    level = joint_level(len(chosen))
    found = []
    for pair, _ in chosen:
        places = [place for place, each in enumerate(pairs) if each == pair]
        if places:
            shown = [
                (images[place], logits.masked_images[place], logits.control_images[place]) for place in places
            ]
            names = [one.predictions.names[loaded[place][1]] for place in places]
            found.append(_summarise(pair, probabilities[places], names, shown, level))
    return sorted(found, key=lambda each: each.control_fall - each.fall)


def _choose(
    one: Measured, leanings: Sequence[LabelLeaning], num_masked: int, generator: np.random.Generator
) -> list[tuple[LabelPair, list[int]]]:
    """Labels with enough images that have both labels and are given the label, and these images.

    At most one image of a group, so that they are independent. The labels are those whose decisions differ
    most between images with and without the other label.
    """
    predictions, units = one.predictions, one.predictions.units
    chosen: list[tuple[LabelPair, list[int]]] = []
    for leaning in sorted(leanings, key=_suspicion, reverse=True):
        if len(chosen) == max(1, num_masked // IMAGES_PER_LABEL) or _suspicion(leaning) <= 0:
            break
        pair = leaning.pair
        both = predictions.positive[:, pair.label] & predictions.positive[:, pair.other]
        rows = generator.permutation(np.flatnonzero(both & one.decisions.present[:, pair.label]))
        _, first = np.unique(units.of_image[rows], return_index=True)
        rows = rows[np.sort(first)][:IMAGES_PER_LABEL]
        if len(rows) >= MIN_UNITS:
            chosen.append((pair, rows.tolist()))
    return chosen


def _suspicion(leaning: LabelLeaning) -> float:
    rates = (leaning.recall, leaning.false_positives)
    return float(np.nansum([rate.first - rate.second for rate in rates]))


def _summarise(
    pair: LabelPair,
    probabilities: Values,
    names: Sequence[str],
    shown: Sequence[tuple[Pixels, Pixels, Pixels]],
    level: float,
) -> MaskedLabel:
    """probabilities: n x 3 x L"""
    clean, masked, control = probabilities[:, :, pair.label].T
    differences = control - masked
    # The image in the middle: the most striking one would not be typical.
    middle = int(np.argsort(differences, kind="stable")[len(differences) // 2])
    numbers = (float(clean[middle]), float(masked[middle]), float(control[middle]))
    return MaskedLabel(
        pair,
        len(clean),
        fall=float((clean - masked).mean()),
        control_fall=float((clean - control).mean()),
        other_fall=float((probabilities[:, 0, pair.other] - probabilities[:, 1, pair.other]).mean()),
        difference=mean_difference(differences, level),
        example=MaskedExample(names[middle], shown[middle], numbers),
    )
