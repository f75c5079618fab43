"""Whether a label is recognised by itself, or through another label that it usually occurs with.

For each label and one co-occurring label, images with that other label are compared with images without it:

    average precision    of the label among these images alone
    recall               how often the label is decided where it is present
    false-positive rate  how often it is decided where it is absent

A label that is recognised by itself has the same values in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kmcl.data.cooccurrence import Cooccurrence
from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import (
    LabelRanking,
    Weights,
    rank_label,
    weight_blocks,
)
from kmcl.evaluation.contrasts import Contrast, Strata, contrast
from kmcl.evaluation.predictions import Mask, Predictions, Scores, Units
from kmcl.evaluation.ranking import Values

RESAMPLES = 500
"""Enough for a standard error; the tails come from Student's distribution."""


class LabelPair(NamedTuple):
    """A label and the label that it usually occurs with.

    label, other: indices.
    share:        of the label's training images, those that have the other label.
    overall:      of all images, those that have the other label.
    """

    label: int
    other: int
    share: float
    overall: float


class LabelLeaning(NamedTuple):
    """Each contrast: images that have the pair's other label, minus images that do not.

    average_precision: among these images, both at the prevalence that the label has in all images.
    recall:            share of decided images among those with the label.
    false_positives:   share of decided images among those without the label.
    """

    pair: LabelPair
    average_precision: Contrast
    recall: Contrast
    false_positives: Contrast


def usual_pairs(cooccurrence: Cooccurrence, overall: Values) -> list[LabelPair]:
    """For each label the co-occurring label whose share exceeds its overall share most; none for some.

    cooccurrence: of the training images, see `find_cooccurring_labels`.
    overall:      L shares of all images that have each label.
    """
    pairs = []
    for label, others in enumerate(cooccurrence):
        found = [LabelPair(label, other, share, float(overall[other])) for other, share in others]
        pairs += sorted(found, key=lambda pair: pair.overall - pair.share)[:1]
    return pairs


def measure_leaning(
    predictions: Predictions,
    decided: Mask,
    pairs: Sequence[LabelPair],
    generator: np.random.Generator,
    level: float,
    num_resamples: int = RESAMPLES,
) -> list[LabelLeaning]:
    """Contrasts of each pair, all from the same resamples of images, or of groups of images.

    An image in which either label of a pair is unknown or ignored is left out for this pair.

    decided: N x L, the labels that the model gives.
    level:   of each interval, see `joint_level`.
    """
    if decided.shape != predictions.scores.shape:
        raise InputError(f"decided must have the shape {predictions.scores.shape}, got {decided.shape}")
    if num_resamples < 2:
        raise InputError(f"num_resamples must be at least 2, got {num_resamples}")
    units = predictions.units
    strata = [_strata(predictions, decided, pair, present) for pair in pairs for present in (True, False)]
    resamples = [
        [_measure_all(stratum, weights) for stratum in strata]
        for weights in weight_blocks(units, num_resamples, generator)
    ]
    drawn = np.concatenate(resamples, axis=2) if pairs else np.empty((0, 3, 0))
    once = np.ones((len(predictions), 1), dtype=np.int32)
    found = []
    for place, pair in enumerate(pairs):
        both = slice(2 * place, 2 * place + 2)
        with_other, without = strata[both]
        estimates = np.stack([_measure_all(stratum, once)[:, 0] for stratum in (with_other, without)])
        of_positive = _counts((with_other.positive, without.positive), units)
        of_negative = _counts((with_other.negative, without.negative), units)
        # An average precision is as uncertain as the smaller of its two sides makes it.
        of_both = _Counts(of_positive.images, tuple(map(min, of_positive.units, of_negative.units)))
        contrasts = [
            contrast(Strata(estimates[:, index], drawn[both, index], *counts), level)
            for index, counts in enumerate((of_both, of_positive, of_negative))
        ]
        found.append(LabelLeaning(pair, *contrasts))
    return found


class _Stratum(NamedTuple):
    """The images of a pair with its other label, or those without it.

    ranking:    of its images by the label's score; None without positives.
    positive, negative: N, images with the label and without it.
    decided:    N, images that the model gives the label.
    prevalence: of the label in all images, with the other label or without it.
    """

    ranking: LabelRanking | None
    positive: Mask
    negative: Mask
    decided: Mask
    prevalence: float


def _strata(predictions: Predictions, decided: Mask, pair: LabelPair, present: bool) -> _Stratum:
    label, other = pair.label, pair.other
    inside = (predictions.positive if present else predictions.negative)[:, other]
    positive, negative = predictions.positive[:, label], predictions.negative[:, label]
    scores: Scores = predictions.scores[:, label]
    known = (positive | negative) & predictions.evaluated[:, other]
    prevalence = float((positive & known).sum() / max(known.sum(), 1))
    ranking = rank_label(scores, inside & known, positive) if (inside & positive).any() else None
    return _Stratum(ranking, inside & positive, inside & negative, decided[:, label], prevalence)


def _measure_all(stratum: _Stratum, weights: Weights) -> Values:
    """3 x R: average precision, recall and false-positive rate in each resample."""
    return np.stack(
        [
            _average_precisions(stratum, weights),
            _rates(stratum.positive, stratum.decided, weights),
            _rates(stratum.negative, stratum.decided, weights),
        ]
    )


def _rates(images: Mask, decided: Mask, weights: Weights) -> Values:
    count, total = weights[images & decided].sum(axis=0), weights[images].sum(axis=0)
    return np.where(total > 0, count / np.maximum(total, 1), np.nan)


def _average_precisions(stratum: _Stratum, weights: Weights) -> Values:
    """Average precision at a prevalence p instead of that of the images, in each resample.

        AP = sum over points t of (R_t - R_{t-1}) p R_t / (p R_t + (1 - p) F_t)

    R_t is the recall and F_t the false-positive rate at point t. Average precision grows with the prevalence,
    and a label is more frequent among images that have its co-occurring label: the same ranking would look
    better there. NaN without positives or without negatives.
    """
    negatives = weights[stratum.negative].sum(axis=0)
    if stratum.ranking is None or not stratum.negative.any():
        return np.full(weights.shape[1], np.nan)
    ranking, prevalence = stratum.ranking, stratum.prevalence
    predicted = np.add.reduceat(weights[ranking.order], ranking.starts, axis=0).cumsum(axis=0)
    gained = np.add.reduceat(weights[ranking.positive_order], ranking.positive_starts, axis=0)
    true_positives = gained.cumsum(axis=0)
    positives = true_positives[-1]
    recall = prevalence * true_positives / np.maximum(positives, 1)
    alarms = (1 - prevalence) * (predicted - true_positives) / np.maximum(negatives, 1)
    terms = gained * recall / np.maximum(recall + alarms, np.finfo(np.float64).tiny)
    defined = (positives > 0) & (negatives > 0)
    return np.where(defined, terms.sum(axis=0) / np.maximum(positives, 1), np.nan)


class _Counts(NamedTuple):
    """Of the images with the other label, and of those without it."""

    images: tuple[int, ...]
    units: tuple[int, ...]


def _counts(sets: tuple[Mask, Mask], units: Units) -> _Counts:
    return _Counts(
        tuple(int(images.sum()) for images in sets),
        tuple(len(np.unique(units.of_image[images])) for images in sets),
    )
