"""What became of a guarantee on a split: the rates that were promised, as they were achieved there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmcl.evaluation.guarantee import Guarantee
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Mask, Predictions
from kmcl.evaluation.ranking import Values, mean_of_defined


@dataclass(frozen=True)
class PromisedRates:
    """Achieved rates beside the promised one; NaN where there is nothing to measure.

    rate:   of found the rate itself, else the mean over the labels that have the promise
    lowest: the label with the lowest rate; None of found
    labels: L rates of the labels; NaN where the promise was not given, and all of them of found
    """

    promised: float
    rate: float
    lowest: str | None
    labels: Values

    def to_json(self) -> JsonObject:
        return to_json_object(self)


def promised_rates(predictions: Predictions, decisions: Mask, guarantee: Guarantee) -> PromisedRates:
    """Measure what `guarantee` promises of N x L decisions; groups count once, as there."""
    unknown = np.full(predictions.num_labels, np.nan)
    if guarantee.kind == "found":
        return PromisedRates(guarantee.level, found_share(predictions, decisions), None, unknown)
    rates = (recalls if guarantee.kind == "recall" else precisions)(predictions, decisions)
    given = np.array([label not in guarantee.not_given for label in predictions.labels])
    rates = np.where(given, rates, np.nan)
    is_measured = not np.isnan(rates).all()
    lowest = predictions.labels[int(np.nanargmin(rates))] if is_measured else None
    return PromisedRates(guarantee.level, mean_of_defined(rates), lowest, rates)


def recalls(predictions: Predictions, decisions: Mask) -> Values:
    """L shares of the images with a label where it is predicted, mean over groups where there are any."""
    return _label_means(predictions, decisions, predictions.positive)


def precisions(predictions: Predictions, decisions: Mask) -> Values:
    """L shares of the images where a label is predicted that have it, mean over groups likewise."""
    return _label_means(predictions, predictions.positive, decisions & predictions.evaluated)


def found_share(predictions: Predictions, decisions: Mask) -> float:
    """The share of an image's labels that are predicted, mean over images with a label, or over groups."""
    positive = predictions.positive
    numbers = positive.sum(axis=1)
    shares = (positive & decisions).sum(axis=1) / np.maximum(numbers, 1)
    return _mean_over_groups(predictions, shares, numbers > 0)


def _label_means(predictions: Predictions, values: Mask, counted: Mask) -> Values:
    columns = zip(values.T.astype(np.float64), counted.T, strict=True)
    return np.array([_mean_over_groups(predictions, of_label, there) for of_label, there in columns])


def _mean_over_groups(predictions: Predictions, values: Values, counted: Mask) -> float:
    """The mean over the groups that have a counted image of the means over these images."""
    units = predictions.units.of_image[counted]
    if not len(units):
        return float("nan")
    counts = np.bincount(units)
    sums = np.bincount(units, weights=values[counted])
    return float((sums[counts > 0] / counts[counts > 0]).mean())
