"""Bootstrap intervals for mAP, and for the difference between two models.

Where predictions have groups (patients), whole groups are resampled: images of one group resemble each other,
and intervals that take them for independent are too short.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.groups import has_groups
from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.label_rules import logit, sigmoid
from kmcl.evaluation.predictions import Mask, Predictions, Scores, Units
from kmcl.evaluation.ranking import Values, label_average_precisions


@dataclass(frozen=True)
class BootstrapInterval:
    """An estimate with its interval.

    The interval of an mAP is symmetric on the logit scale, so that it stays inside [0, 1]:

        logit(c) -+ t s / (c (1 - c)),   c = estimate - bias

    s is `standard_error` and t the quantile of Student's distribution with `degrees_of_freedom`. Average
    precision is biased upwards with few positives, and on a resample once more, by about as much; c is the
    estimate without that bias. The interval of a difference is estimate - bias -+ t s. Both are extended to
    contain the estimate where they do not.

    standard_error:     deviation of the resamples, times sqrt(m / (m - 1)) for one label with m positives:
                        resamples of m positives vary less than samples of m new ones.
    bias:               mean of the resamples minus the estimate.
    num_undefined:      resamples that drew no positive of any label; they are left out.
    degrees_of_freedom: m - 1 for one label, for several by the formula of Welch and Satterthwaite; NaN where
                        the resamples do not vary.
    num_groups:         groups that were resampled; None where images were. m then counts groups.
    """

    estimate: float
    low: float
    high: float
    level: float
    standard_error: float
    bias: float
    num_resamples: int
    num_undefined: int
    degrees_of_freedom: float = float("nan")
    num_groups: int | None = None

    def to_json(self) -> JsonObject:
        return to_json_object(self)


@dataclass(frozen=True)
class PairedDifference:
    """mAP of the first model, of the second, and of the first minus the second on the same resamples.

    p_value: two-sided, of the t statistic whose interval is `difference`; not below 2 / (resamples + 1),
    beyond which the resamples say nothing about the tails.
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
    """Interval of the mean average precision under resampling of the images, or of groups of images.

    A label whose positives are all absent from a resample is left out of that resample's mean, as it is
    left out of mAP itself. The interval covers the sampling of images, not the randomness of training.
    """
    _check(num_resamples, level, len(predictions))
    sample = _draw((predictions,), ((1.0,),), generator, num_resamples)
    return _map_interval(sample, 0, level)


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
    of_first = (1 / len(first),) * len(first) + (0.0,) * len(second)
    of_second = (0.0,) * len(first) + (1 / len(second),) * len(second)
    difference = tuple(one - other for one, other in zip(of_first, of_second, strict=True))
    sample = _draw(models, (of_first, of_second, difference), generator, num_resamples)
    interval = _difference_interval(sample, 2, level)
    return PairedDifference(
        first=_map_interval(sample, 0, level),
        second=_map_interval(sample, 1, level),
        difference=interval,
        p_value=_p_value(interval),
    )


class _Sample(NamedTuple):
    """Estimates and resamples of combinations of models, and what determines their intervals.

    estimates:      of each combination.
    resamples:      of each combination.
    positive_units: of each label with a positive, the number of images or groups that have one.
    num_groups:     None where images are resampled.
    """

    estimates: Values
    resamples: list[Resamples]
    positive_units: Values
    num_groups: int | None


def _draw(
    models: Sequence[Predictions],
    combinations: Sequence[Sequence[float]],
    generator: np.random.Generator,
    num_resamples: int,
) -> _Sample:
    grouped = next((model for model in models if model.groups is not None), models[0])
    units = grouped.units
    positive = models[0].positive
    present = positive.any(axis=0)
    estimates = np.stack([label_average_precisions(model)[present] for model in models])
    return _Sample(
        estimates=(np.asarray(combinations) @ estimates).mean(axis=1)
        if present.any()
        else np.full(len(combinations), np.nan),
        resamples=resample(models, combinations, units, generator, num_resamples),
        positive_units=_positive_units(positive[:, present], units),
        num_groups=units.num_units if has_groups(grouped.groups) else None,
    )


def _positive_units(positive: Mask, units: Units) -> Values:
    """Of each label, how many units have a positive."""
    counts = [len(np.unique(units.of_image[column])) for column in positive.T]
    return np.array(counts, dtype=np.float64)


def _map_interval(sample: _Sample, index: int, level: float) -> BootstrapInterval:
    found = _without_limits(sample, index, level)
    estimate = found.estimate
    if found.standard_error == 0:
        # A perfect ranking gives perfect resamples only. Its lower limit is that of a share of m out of m
        # (Clopper and Pearson), with m positives a label on (harmonic) average.
        share = ((1 - level) / 2) ** float((1 / sample.positive_units).mean())
        return replace(found, low=estimate * share, high=1 - (1 - estimate) * share)
    centre = float(np.clip(estimate - found.bias, 1e-6, 1 - 1e-6))
    reach = _quantile(found) * found.standard_error / (centre * (1 - centre))
    low, high = sigmoid(logit(np.array([centre])) + np.array([-reach, reach]))
    return replace(found, low=min(float(low), estimate), high=max(float(high), estimate))


def _difference_interval(sample: _Sample, index: int, level: float) -> BootstrapInterval:
    found = _without_limits(sample, index, level)
    estimate, centre = found.estimate, found.estimate - found.bias
    if found.standard_error == 0:  # the same model twice, or a single group, which determines nothing
        reach = 0.0 if estimate == 0 else 2.0
    else:
        reach = _quantile(found) * found.standard_error
    low, high = min(centre - reach, estimate), max(centre + reach, estimate)
    return replace(found, low=max(low, -1.0), high=min(high, 1.0))


def _without_limits(sample: _Sample, index: int, level: float) -> BootstrapInterval:
    means, variances = sample.resamples[index]
    defined = means[~np.isnan(means)]
    estimate = float(sample.estimates[index])
    error, freedom = 0.0 * estimate, float("nan")
    others = np.maximum(sample.positive_units - 1, 1)
    if variances.any():
        inflation = (variances * sample.positive_units / others).sum() / variances.sum()
        error = float(np.sqrt(inflation) * defined.std(ddof=1))
        freedom = float(variances.sum() ** 2 / (variances**2 / others).sum())
    return BootstrapInterval(
        estimate=estimate,
        low=float("nan"),
        high=float("nan"),
        level=level,
        standard_error=error,
        bias=float(defined.mean()) - estimate if len(defined) else 0.0 * estimate,
        num_resamples=len(means),
        num_undefined=len(means) - len(defined),
        degrees_of_freedom=freedom,
        num_groups=sample.num_groups,
    )


def _quantile(interval: BootstrapInterval) -> float:
    """How many standard errors an interval of this level extends to either side."""
    from scipy.special import stdtrit

    return float(stdtrit(interval.degrees_of_freedom, (1 + interval.level) / 2))


def _p_value(difference: BootstrapInterval) -> float:
    from scipy.special import stdtr

    if difference.standard_error == 0:
        return 1.0
    statistic = (difference.estimate - difference.bias) / difference.standard_error
    lowest = 2 / (difference.num_resamples - difference.num_undefined + 1)
    return float(max(2 * stdtr(difference.degrees_of_freedom, -abs(statistic)), lowest))


def _check(num_resamples: int, level: float, num_images: int) -> None:
    if num_resamples < 1:
        raise InputError(f"num_resamples must be at least 1, got {num_resamples}")
    if not 0 < level < 1:
        raise InputError(f"level must be in (0, 1), got {level}")
    if num_images == 0:
        raise InputError("a bootstrap needs at least one image, got none")


def _check_same_truth(first: Predictions, second: Predictions) -> None:
    """Raise InputError unless both models were evaluated on the same labels, images, groups and targets."""
    if first.labels != second.labels:
        raise InputError(f"the labels differ: {_first_difference(first.labels, second.labels)}")
    if first.names != second.names:
        raise InputError(f"the images differ: {_first_difference(first.names, second.names)}")
    if first.groups is not None and second.groups is not None and first.groups != second.groups:
        raise InputError(f"the groups differ: {_first_difference(first.groups, second.groups)}")
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


RESAMPLES = 1000
SEED = 0


def map_interval(
    predictions: Predictions, num_resamples: int = RESAMPLES, seed: int = SEED
) -> BootstrapInterval:
    """mAP with its 95 % interval."""
    return bootstrap_map(predictions, np.random.default_rng(seed), num_resamples)


def paired_difference(
    models: Sequence[Predictions],
    references: Sequence[Predictions],
    num_resamples: int = RESAMPLES,
    seed: int = SEED,
) -> PairedDifference:
    """Mean mAP of the models minus that of the references, with its 95 % interval and p-value.

    Raises InputError unless all were made from the same images, labels and targets, in the same order.
    """
    return compare_mean_map(models, references, np.random.default_rng(seed), num_resamples)
