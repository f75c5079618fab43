"""Thresholds of the scores that keep a promised rate on images they were not chosen on.

It holds if val and the new images are exchangeable: as if all of them had been drawn together, in random
order. Where images have groups (patients), groups are exchangeable, so a group counts once: its loss is the
mean over its images, and the promise is about a new group. A pair whose target is unknown or ignored has no
part in anything.

- recall, for each label: the loss of an image that has the label is 1 where its score is below the threshold.
- found: the loss of an image is the share of its labels whose score is below one threshold that is common to
  all labels. Images without a label have nothing to be found, and are left out. The threshold is common
  because thresholds of the labels' own, fitted on val, would make the images of val differ from new ones.

Both losses only grow with the threshold t. In expectation (conformal risk control, Angelopoulos et al. 2022)
the highest t is taken with

    (n R(t) + 1) / (n + 1) <= 1 - level            R(t) the mean loss of n images or groups of val

and with a confidence the highest t up to which all p-values of "the risk is above 1 - level" are at most
1 - confidence (risk-controlling prediction sets, Bates et al. 2021).

- precision, for each label: the loss of an image where the label is predicted is 1 if it is not there. It may
  rise and fall with t, so thresholds of a fixed grid are tested, from high to low (learn then test,
  Angelopoulos et al. 2021), and the lowest of those that pass is taken.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.label_rules import sigmoid
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import Values
from kmcl.evaluation.risk_bounds import binomial_p_values, hoeffding_bentkus_p_values, last_certified
from kmcl.evaluation.thresholds import half_way_below

GRID_LOGITS = np.arange(160, -161, -1) / 20
"""Of the thresholds tested for a precision, from 8 to -8."""
START_LOGITS = (2, 1, 0)
"""Where testing begins anew: it would end with the first thresholds, which nearly nothing reaches."""

_GRID = sigmoid(GRID_LOGITS).astype(np.float32)
_STARTS = frozenset(np.flatnonzero(np.isin(GRID_LOGITS, START_LOGITS)).tolist())
_ROUNDING = 1e-9


class GuaranteedThresholds(NamedTuple):
    """L thresholds of the scores, and what they promise."""

    values: Values
    guarantee: Guarantee


class Positives(NamedTuple):
    """Pairs whose label is present: what may be missed.

    scores:    P scores of the pairs
    weights:   P parts of its unit's loss that a missed pair adds
    num_units: images or groups that have such a pair
    is_binary: the loss of a unit can be 0 or 1 only
    """

    scores: npt.NDArray[np.floating]
    weights: Values
    num_units: int
    is_binary: bool


def choose_guaranteed_thresholds(
    predictions: Predictions, wish: GuaranteeWish, otherwise: Values
) -> GuaranteedThresholds:
    """The thresholds that val supports; `otherwise` has those of the labels it does not support any for."""
    choose = {"recall": _for_recall, "found": _for_found, "precision": _for_precision}[wish.kind]
    found = choose(predictions, wish)
    missing = np.isnan(found)
    units = predictions.units
    guarantee = Guarantee(
        wish.kind,
        wish.level,
        wish.confidence,
        num_images=len(predictions),
        num_groups=units.num_units if units.are_groups else None,
        needed=needed_units(wish),
        not_given=tuple(label for label, lacks in zip(predictions.labels, missing, strict=True) if lacks),
    )
    return GuaranteedThresholds(np.where(missing, otherwise, found), guarantee)


def needed_units(wish: GuaranteeWish) -> int:
    """Images (or groups) of val that it takes where the model makes no error at all.

    In expectation 1 / (n + 1) <= 1 - level; with a confidence level^n <= 1 - confidence. The images have the
    label, or are those where it is predicted, each start of whose tests has a part of 1 - confidence.
    """
    if wish.confidence is None:
        return math.ceil(1 / (1 - wish.level) - 1 - _ROUNDING)
    error = 1 - wish.confidence
    if wish.kind == "precision":
        error /= len(_STARTS)
    return math.ceil(math.log(error) / math.log(wish.level) - _ROUNDING)


def refuse_small_val(predictions: Predictions, wish: GuaranteeWish) -> None:
    """Raise InputError where no model could be given the guarantee for any label, before one is trained."""
    units, needed = predictions.units, needed_units(wish)
    unit = "groups" if units.are_groups else "images"
    if wish.kind == "found":
        most = len(set(units.of_image[predictions.positive.any(axis=1)].tolist()))
        having = f"that have a label; there {'is' if most == 1 else 'are'} {most}"
    else:
        columns = predictions.positive.T if wish.kind == "recall" else predictions.evaluated.T
        counts = [len(set(units.of_image[there].tolist())) for there in columns]
        most = max(counts)
        label = predictions.labels[counts.index(most)]
        having = f"with the label; {label!r}, the most frequent, has {most}"
        if wish.kind == "precision":
            having = f"where a label is predicted; val has {most}"
    if most < needed:
        raise InputError(f"{wish} cannot be guaranteed: it takes at least {needed} {unit} of val {having}")


def controlled_threshold(positives: Positives, wish: GuaranteeWish) -> float | None:
    """The highest score of a positive pair that may be the threshold; None where not even the lowest may.

    A pair at the threshold is found, so the lowest misses nothing.
    """
    order = np.argsort(positives.scores)
    ranked = positives.scores[order]
    if not len(ranked):
        return None
    begins = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    missed = np.append(0.0, np.cumsum(positives.weights[order]))[begins]
    units = np.full(len(missed), positives.num_units)
    bound = 1 - wish.level
    if wish.confidence is None:
        allowed = missed + 1 <= (units + 1) * bound + _ROUNDING
    else:
        tested = binomial_p_values if positives.is_binary else hoeffding_bentkus_p_values
        p_values = tested(missed, units, bound)
        allowed = p_values <= 1 - wish.confidence + _ROUNDING
    # Both grow with what is missed: all before the last one that is allowed are allowed too.
    return float(ranked[begins[np.flatnonzero(allowed)[-1]]]) if allowed.any() else None


def positives_of_label(predictions: Predictions, label: int) -> Positives:
    """The images with a label; those of one group share its weight of 1."""
    there = predictions.positive[:, label]
    units = predictions.units
    having = units.of_image[there]
    counts = np.bincount(having)
    weights = 1 / counts[having]
    num_units = int((counts > 0).sum())
    return Positives(predictions.scores[there, label], weights, num_units, not units.are_groups)


def positives_of_images(predictions: Predictions) -> Positives:
    """The labels of the images: those of one image share its weight, its images that of a group."""
    positive = predictions.positive
    has_label = positive.any(axis=1)
    units = predictions.units
    images = np.bincount(units.of_image[has_label], minlength=units.num_units)
    weights = 1 / (np.maximum(positive.sum(axis=1), 1) * np.maximum(images[units.of_image], 1))
    rows, columns = np.nonzero(positive)
    return Positives(predictions.scores[rows, columns], weights[rows], int((images > 0).sum()), False)


def _for_recall(predictions: Predictions, wish: GuaranteeWish) -> Values:
    values = np.full(predictions.num_labels, np.nan)
    for label, evaluated in enumerate(predictions.evaluated.T):
        chosen = controlled_threshold(positives_of_label(predictions, label), wish)
        if chosen is not None:
            values[label] = _lowered(chosen, predictions.scores[evaluated, label])
    return values


def _for_found(predictions: Predictions, wish: GuaranteeWish) -> Values:
    chosen = controlled_threshold(positives_of_images(predictions), wish)
    if chosen is None:
        return np.full(predictions.num_labels, np.nan)
    return np.full(predictions.num_labels, _lowered(chosen, predictions.scores[predictions.evaluated]))


def _for_precision(predictions: Predictions, wish: GuaranteeWish) -> Values:
    if wish.confidence is None:
        raise InputError("a guaranteed precision needs a confidence")
    units = predictions.units
    p_values = hoeffding_bentkus_p_values if units.are_groups else binomial_p_values
    values = np.full(predictions.num_labels, np.nan)
    for label, evaluated in enumerate(predictions.evaluated.T):
        reached = np.searchsorted(-_GRID, -predictions.scores[evaluated, label])
        wrong = ~predictions.positive[evaluated, label]
        of_units = units.of_image[evaluated] if units.are_groups else None
        found = p_values(*_false_predictions(reached, wrong, of_units), 1 - wish.level)
        last = last_certified(found, _STARTS, 1 - wish.confidence)
        if last is not None:
            values[label] = float(_GRID[last])
    return values


def _false_predictions(
    reached: npt.NDArray[np.int64], wrong: npt.NDArray[np.bool_], units: npt.NDArray[np.int64] | None
) -> tuple[Values, Values]:
    """At each threshold of the grid, the sum of the units' losses and the number of units with a prediction.

    reached: of each image the first threshold of the falling grid that its score reaches
    units:   None where each image is one; else a unit's loss is the share of its predictions that are wrong
    """
    num = len(_GRID)
    if units is None:
        false = np.bincount(reached, weights=wrong, minlength=num)[:num]
        return np.cumsum(false), np.cumsum(np.bincount(reached, minlength=num)[:num], dtype=np.float64)
    sums, counts = np.zeros((2, num))
    for place in range(num):
        predicted = reached <= place
        of_unit = np.bincount(units[predicted])
        false_of_unit = np.bincount(units[predicted], weights=wrong[predicted])
        sums[place] = (false_of_unit / np.maximum(of_unit, 1)).sum()
        counts[place] = (of_unit > 0).sum()
    return sums, counts


def _lowered(chosen: float, scores: npt.NDArray[np.float32]) -> float:
    """Half-way to the next lower score of val, so that a tiny numerical difference does not miss an image."""
    ranked = np.unique(scores)[::-1]
    return half_way_below(ranked, int(np.searchsorted(-ranked, -np.float32(chosen))))
