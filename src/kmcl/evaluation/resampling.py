"""Average precision on resamples of the images.

Images, or whole groups of images, are drawn with replacement. An image drawn m times is one with weight m, so
each label is sorted once and every resample is a weighted average precision over the same ranking: the cost
is one pass over the weights instead of a sort per label and resample.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.predictions import Mask, Predictions, Scores, Units
from kmcl.evaluation.ranking import Values

Weights = npt.NDArray[np.int32]

# Resamples weighted at once: a row of weights then is two cache lines to sixteen, and 40,000 images of
# weights take 10 MB.
_RESAMPLES_AT_ONCE = 64


class Resamples(NamedTuple):
    """One quantity, averaged over labels, in R resamples.

    means:     R means over the labels that have a positive in the resample; NaN where none has.
    variances: of each label's value, over the resamples that have a positive of it; 0 with fewer than two.
    """

    means: Values
    variances: Values


def resample(
    models: Sequence[Predictions],
    combinations: Sequence[Sequence[float]],
    units: Units,
    generator: np.random.Generator,
    num_resamples: int,
) -> list[Resamples]:
    """Linear combinations of the models' average precisions, all on the same resamples.

    models:       evaluated on the same images, labels and targets.
    combinations: of each, one weight for every model; (1, -1) is the difference of two models.
    """
    labels = np.flatnonzero(models[0].positive.any(axis=0)).tolist()
    rankings = [_rank_labels(model, labels) for model in models]
    means = np.full((len(combinations), num_resamples), np.nan)
    drawn, total, squares = np.zeros((3, len(combinations), len(labels)))
    for start in range(0, num_resamples, _RESAMPLES_AT_ONCE):
        block = slice(start, min(start + _RESAMPLES_AT_ONCE, num_resamples))
        weights = _draw_weights(units, block.stop - block.start, generator)
        sums = np.zeros((len(combinations), weights.shape[1]))
        counts = np.zeros(weights.shape[1])
        for index in range(len(labels)):
            values = [_weighted_average_precisions(of_model[index], weights) for of_model in rankings]
            combined = np.asarray(combinations) @ np.stack(values)
            is_drawn = ~np.isnan(combined[0])
            combined[:, ~is_drawn] = 0
            sums += combined
            counts += is_drawn
            drawn[:, index] += is_drawn.sum()
            total[:, index] += combined.sum(axis=1)
            squares[:, index] += (combined**2).sum(axis=1)
        means[:, block] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    variances = (squares - total**2 / np.maximum(drawn, 1)) / np.maximum(drawn - 1, 1)
    # Below this a variance is the rounding of the two terms.
    variances[variances < 1e-14] = 0
    return [Resamples(*each) for each in zip(means, variances, strict=True)]


class LabelRanking(NamedTuple):
    """One label's evaluated images, sorted by falling score and divided into blocks where precision is
    evaluated.

    order:          images by falling score, down to the last block that has a positive.
    starts:         where each block begins in `order`; a block ends with a group of equal scores that
                    contains a positive.
    positive_order: the positive images by falling score.
    positive_starts: where each block begins in `positive_order`.
    """

    order: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    positive_order: npt.NDArray[np.int64]
    positive_starts: npt.NDArray[np.int64]


def _rank_labels(predictions: Predictions, labels: Sequence[int]) -> list[LabelRanking]:
    """Sort labels that each have a positive."""
    evaluated, positive = predictions.evaluated, predictions.positive
    return [
        rank_label(predictions.scores[:, label], evaluated[:, label], positive[:, label]) for label in labels
    ]


def rank_label(scores: Scores, evaluated: Mask, is_positive: Mask) -> LabelRanking:
    """Sort the evaluated images of a label, of which at least one is positive."""
    images = np.flatnonzero(evaluated)
    order = images[np.argsort(-scores[images])]
    positive, ranked = is_positive[order], scores[order]
    group = np.concatenate([[0], np.cumsum(ranked[1:] != ranked[:-1])])
    group_ends = np.searchsorted(group, np.arange(group[-1] + 1), side="right")
    groups_with_positives, positive_starts = np.unique(group[positive], return_index=True)
    ends = group_ends[groups_with_positives]
    starts = np.concatenate([[0], ends[:-1]])
    return LabelRanking(order[: ends[-1]], starts, order[positive], positive_starts)


def _weighted_average_precisions(ranking: LabelRanking, weights: Weights) -> Values:
    """Average precision of one label in each resample; NaN where no positive was drawn.

    weights: N x R, how often each image was drawn in each resample.
    """
    predicted = np.add.reduceat(weights[ranking.order], ranking.starts, axis=0).cumsum(axis=0)
    gained = np.add.reduceat(weights[ranking.positive_order], ranking.positive_starts, axis=0)
    true_positives = gained.cumsum(axis=0)
    # If nothing was drawn so far, the numerator is 0: any denominator will do.
    terms = gained * (true_positives / np.maximum(predicted, 1))
    positives = true_positives[-1]
    return np.where(positives > 0, terms.sum(axis=0) / np.maximum(positives, 1), np.nan)


def weight_blocks(units: Units, num_resamples: int, generator: np.random.Generator) -> Iterator[Weights]:
    """N x R weights of all resamples, some of them at a time."""
    for start in range(0, num_resamples, _RESAMPLES_AT_ONCE):
        yield _draw_weights(units, min(_RESAMPLES_AT_ONCE, num_resamples - start), generator)


def _draw_weights(units: Units, num_resamples: int, generator: np.random.Generator) -> Weights:
    """N x R: how often each image is in each resample of as many units as there are."""
    counts = [
        np.bincount(generator.integers(units.num_units, size=units.num_units), minlength=units.num_units)
        for _ in range(num_resamples)
    ]
    return np.ascontiguousarray(np.stack(counts, axis=1)[units.of_image], dtype=np.int32)
