"""How well one label ranks the images: average precision and area under the ROC curve.

All of it is read off the label's *operating points*: at each distinct score, how many pairs score at least
that, and how many of them are positive. Equal scores are one point, so no result depends on the order of
the images.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.predictions import Mask, Predictions

Values = npt.NDArray[np.float64]


class OperatingPoints(NamedTuple):
    """Cumulative counts at each distinct score, highest score first.

    scores:         T distinct scores, falling.
    predicted:      T numbers of pairs that score at least that.
    true_positives: T numbers of positive pairs that score at least that.
    """

    scores: npt.NDArray[Any]
    predicted: Values
    true_positives: Values


def operating_points(scores: npt.NDArray[Any], positive: Mask) -> OperatingPoints:
    """Cumulative counts for one label. `scores` and `positive` have one entry per evaluated image."""
    order = np.argsort(-scores)
    ranked = scores[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True)[: len(ranked)])
    true_positives = np.cumsum(positive[order], dtype=np.float64)
    return OperatingPoints(ranked[ends], (ends + 1).astype(np.float64), true_positives[ends])


def average_precision(points: OperatingPoints) -> float:
    """Area under the precision-recall steps, the definition of scikit-learn's `average_precision_score`.

        AP = sum over points t of (R_t - R_{t-1}) P_t

    R_t is the recall and P_t the precision at point t. No interpolation. NaN without positives.
    """
    if not len(points.scores) or points.true_positives[-1] == 0:
        return float("nan")
    gained = np.diff(points.true_positives, prepend=0.0)
    return float((gained * points.true_positives / points.predicted).sum() / points.true_positives[-1])


def eleven_point_average_precision(points: OperatingPoints) -> float:
    """The average precision of the first VOC challenges (to 2009), for comparison with published figures.

        AP11 = (1/11) sum over r in {0, 0.1, ..., 1} of max { P_t : R_t >= r }

    NaN without positives.
    """
    if not len(points.scores) or points.true_positives[-1] == 0:
        return float("nan")
    precision = points.true_positives / points.predicted
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    # Recall >= i/10 in whole numbers: 10 TP >= i * positives has no rounding.
    first = np.searchsorted(10 * points.true_positives, np.arange(11) * points.true_positives[-1])
    return float(best_from_here[first].mean())


def area_under_roc(points: OperatingPoints) -> float:
    """Probability that a positive scores above a negative, equal scores counting one half.

    NaN without positives or without negatives.
    """
    if not len(points.scores):
        return float("nan")
    positives = points.true_positives[-1]
    negatives = points.predicted[-1] - positives
    if positives == 0 or negatives == 0:
        return float("nan")
    false_positives = points.predicted - points.true_positives
    negatives_here = np.diff(false_positives, prepend=0.0)
    positives_here = np.diff(points.true_positives, prepend=0.0)
    # A product and a sum, not `@`: on long arrays and a busy machine the threads of BLAS take longer.
    won = (negatives_here * (points.true_positives - positives_here / 2)).sum()
    return float(won / (positives * negatives))


def label_points(predictions: Predictions) -> list[OperatingPoints]:
    """The operating points of each label, over its evaluated pairs."""
    evaluated, positive = predictions.evaluated, predictions.positive
    return [
        operating_points(predictions.scores[evaluated[:, label], label], positive[evaluated[:, label], label])
        for label in range(predictions.num_labels)
    ]


def label_average_precisions(predictions: Predictions) -> Values:
    """L average precisions; NaN for a label without positives."""
    return per_label(average_precision, label_points(predictions))


def mean_average_precision(predictions: Predictions) -> float:
    """Mean of the average precisions over the labels that have a positive; NaN when none has."""
    return mean_of_defined(label_average_precisions(predictions))


def mean_area_under_roc(predictions: Predictions) -> float:
    """Mean of the areas under the ROC curves over the labels that have one; NaN when none has."""
    return mean_of_defined(per_label(area_under_roc, label_points(predictions)))


def per_label(metric: Callable[[OperatingPoints], float], points: list[OperatingPoints]) -> Values:
    """One metric for every label."""
    return np.array([metric(of_label) for of_label in points], dtype=np.float64)


def mean_of_defined(values: Values) -> float:
    """Mean over the labels where the metric is defined (not NaN); NaN when it is defined nowhere."""
    defined = values[~np.isnan(values)]
    return float(defined.mean()) if len(defined) else float("nan")
