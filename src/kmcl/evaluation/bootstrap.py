"""Bootstrap intervals for mAP, and for the difference between two models.

Images are drawn with replacement. An image drawn m times is one with weight m, so each label is sorted once
and every resample is a weighted average precision over the same ranking: the cost is one pass over the
weights instead of a sort per label and resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values, mean_average_precision

Weights = npt.NDArray[np.int32]

# Resamples weighted at once: a row of weights then is two cache lines to sixteen, and 40,000 images of
# weights take 10 MB.
_RESAMPLES_AT_ONCE = 64


@dataclass(frozen=True)
class BootstrapInterval:
    """An estimate with its interval: the percentiles of the resamples, shifted to be centred on it.

    Average precision is biased upwards with few positives, and more so on a resample, which has fewer
    distinct images. The plain percentile interval contains that bias twice and misses the true value on one
    side; shifted by `bias` it always contains the estimate and has better coverage.

    bias:          mean of the resamples minus the estimate; about the bias of the estimate itself.
    num_undefined: resamples that drew no positive of any label; they are left out.
    """

    estimate: float
    low: float
    high: float
    level: float
    standard_error: float
    bias: float
    num_resamples: int
    num_undefined: int

    def to_json(self) -> JsonObject:
        return to_json_object(self)


@dataclass(frozen=True)
class PairedDifference:
    """mAP of the first model, of the second, and of the first minus the second on the same resamples.

    p_value: two-sided, twice the smaller share of resamples, shifted like the interval, on either side of 0
    (the observed data counted as one of them on both sides, so it is never 0).
    """

    first: BootstrapInterval
    second: BootstrapInterval
    difference: BootstrapInterval
    p_value: float

    def to_json(self) -> JsonObject:
        return to_json_object(self)


def bootstrap_map(
    predictions: Predictions,
    generator: np.random.Generator,
    num_resamples: int = 1000,
    level: float = 0.95,
) -> BootstrapInterval:
    """Interval of the mean average precision under resampling of the images.

    A label whose positives are all absent from a resample is left out of that resample's mean, as it is
    left out of mAP itself. The interval covers the sampling of images, not the randomness of training.
    """
    _check(num_resamples, level, len(predictions))
    (samples,) = _resample_map((predictions,), generator, num_resamples)
    return _interval(mean_average_precision(predictions), samples, level)


def compare_map(
    first: Predictions,
    second: Predictions,
    generator: np.random.Generator,
    num_resamples: int = 1000,
    level: float = 0.95,
) -> PairedDifference:
    """Paired bootstrap: both models on the same resampled images, so that the difficulty of an image cancels.

    Raises InputError unless both were made from the same images, labels and targets, in the same order.
    """
    return compare_mean_map((first,), (second,), generator, num_resamples, level)


def compare_mean_map(
    first: Sequence[Predictions],
    second: Sequence[Predictions],
    generator: np.random.Generator,
    num_resamples: int = 1000,
    level: float = 0.95,
) -> PairedDifference:
    """Paired bootstrap of two methods, each trained several times: of the mean mAP of their models.

    Images are resampled once for all models; in each resample the mAP is averaged over the models of a
    method, and the difference of the two means is taken. The interval covers how the sample of images affects
    the mean difference of *these* models. The effect of other seeds is visible in their spread alone.
    """
    models = (*first, *second)
    if not first or not second:
        raise InputError("a comparison needs at least one model on each side")
    _check(num_resamples, level, len(models[0]))
    for model in models[1:]:
        _check_same_truth(models[0], model)
    samples = _resample_map(models, generator, num_resamples)
    estimates = [mean_average_precision(predictions) for predictions in models]
    cut = len(first)
    means = [np.mean(samples[:cut], axis=0), np.mean(samples[cut:], axis=0)]
    of_means = [float(np.mean(estimates[:cut])), float(np.mean(estimates[cut:]))]
    difference = _interval(of_means[0] - of_means[1], means[0] - means[1], level)
    moved = means[0] - means[1] - difference.bias
    smaller_side = min(np.sum(moved <= 0), np.sum(moved >= 0))
    num_defined = num_resamples - difference.num_undefined
    return PairedDifference(
        first=_interval(of_means[0], means[0], level),
        second=_interval(of_means[1], means[1], level),
        difference=difference,
        p_value=float(min(1.0, 2 * (1 + smaller_side) / (1 + num_defined))) if num_defined else float("nan"),
    )


class _LabelRanking(NamedTuple):
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


def _rank_label(predictions: Predictions, label: int) -> _LabelRanking | None:
    """Sort one label; None when it has no positives."""
    images = np.flatnonzero(predictions.evaluated[:, label])
    order = images[np.argsort(-predictions.scores[images, label], kind="stable")]
    positive = predictions.positive[order, label]
    if not positive.any():
        return None
    ranked = predictions.scores[order, label]
    group = np.concatenate([[0], np.cumsum(ranked[1:] != ranked[:-1])])
    group_ends = np.searchsorted(group, np.arange(group[-1] + 1), side="right")
    groups_with_positives, positive_starts = np.unique(group[positive], return_index=True)
    ends = group_ends[groups_with_positives]
    starts = np.concatenate([[0], ends[:-1]])
    return _LabelRanking(order[: ends[-1]], starts, order[positive], positive_starts)


def _weighted_average_precisions(ranking: _LabelRanking, weights: Weights) -> Values:
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


def _resample_map(
    models: Sequence[Predictions], generator: np.random.Generator, num_resamples: int
) -> list[Values]:
    """mAP of each model in each resample, all models on the same resamples."""
    rankings = [
        [ranking for label in range(model.num_labels) if (ranking := _rank_label(model, label)) is not None]
        for model in models
    ]
    samples = [np.full(num_resamples, np.nan) for _ in models]
    num_images = len(models[0])
    for start in range(0, num_resamples, _RESAMPLES_AT_ONCE):
        block = slice(start, min(start + _RESAMPLES_AT_ONCE, num_resamples))
        weights = _draw_weights(num_images, block.stop - block.start, generator)
        for of_model, model_rankings in zip(samples, rankings, strict=True):
            sums = np.zeros(weights.shape[1])
            counts = np.zeros(weights.shape[1])
            for ranking in model_rankings:
                values = _weighted_average_precisions(ranking, weights)
                sums += np.nan_to_num(values)
                counts += ~np.isnan(values)
            of_model[block] = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
    return samples


def _draw_weights(num_images: int, num_resamples: int, generator: np.random.Generator) -> Weights:
    """N x R: how often each image is drawn in each resample of N images."""
    counts = [
        np.bincount(generator.integers(num_images, size=num_images), minlength=num_images)
        for _ in range(num_resamples)
    ]
    return np.ascontiguousarray(np.stack(counts, axis=1), dtype=np.int32)


def _interval(estimate: float, samples: Values, level: float) -> BootstrapInterval:
    defined = samples[~np.isnan(samples)]
    tail = (1 - level) / 2
    low, high = np.quantile(defined, (tail, 1 - tail)) if len(defined) else (np.nan, np.nan)
    bias = float(defined.mean() - estimate) if len(defined) else float("nan")
    return BootstrapInterval(
        estimate=estimate,
        low=float(low) - bias,
        high=float(high) - bias,
        level=level,
        standard_error=float(defined.std(ddof=1)) if len(defined) > 1 else float("nan"),
        bias=bias,
        num_resamples=len(samples),
        num_undefined=len(samples) - len(defined),
    )


def _check(num_resamples: int, level: float, num_images: int) -> None:
    if num_resamples < 1:
        raise InputError(f"num_resamples must be at least 1, got {num_resamples}")
    if not 0 < level < 1:
        raise InputError(f"level must be in (0, 1), got {level}")
    if num_images == 0:
        raise InputError("a bootstrap needs at least one image, got none")


def _check_same_truth(first: Predictions, second: Predictions) -> None:
    """Raise InputError unless both models were evaluated on the same labels, images and targets."""
    if first.labels != second.labels:
        raise InputError(f"the labels differ: {_first_difference(first.labels, second.labels)}")
    if first.names != second.names:
        raise InputError(f"the images differ: {_first_difference(first.names, second.names)}")
    differs = (first.evaluated != second.evaluated) | (first.evaluated & (first.targets != second.targets))
    if differs.any():
        image, label = (int(index) for index in np.argwhere(differs)[0])
        raise InputError(
            f"the targets differ in {int(differs.sum())} pairs, "
            f"first for image {first.names[image]!r} and label {first.labels[label]!r}"
        )


def _first_difference(first: tuple[str, ...], second: tuple[str, ...]) -> str:
    for index, (one, other) in enumerate(zip(first, second, strict=False)):
        if one != other:
            return f"number {index} is {one!r} in the first and {other!r} in the second"
    return f"{len(first)} in the first and {len(second)} in the second"
