"""Calibration of probabilities: reliability curve and expected calibration error.

A label's probability is compared with how often the label is present (the probability of the positive class,
not the confidence in the decision), as scikit-learn's `calibration_curve` does. In most data absent pairs are
far more numerous, and easy: pooled over all labels they hide the rare positives, so the mean over labels and
equal-mass bins are reported next to the pooled figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Mask, Predictions
from kmcl.evaluation.ranking import Values, mean_of_defined

Binning = Literal["equal_width", "equal_mass"]


@dataclass(frozen=True)
class ReliabilityCurve:
    """Pairs sorted into bins by their score; empty bins have NaN means.

    lower, upper:   M bounds of the bins; a bin contains its lower bound, the last one its upper too.
    counts:         M numbers of pairs.
    mean_scores:    M mean probabilities.
    positive_rates: M shares of pairs whose label is present.
    """

    lower: Values
    upper: Values
    counts: npt.NDArray[np.int64]
    mean_scores: Values
    positive_rates: Values

    @property
    def expected_calibration_error(self) -> float:
        """ECE = sum over bins of (count / total) |positive rate - mean score|; NaN without pairs."""
        filled = self.counts > 0
        if not filled.any():
            return float("nan")
        gaps = np.abs(self.positive_rates[filled] - self.mean_scores[filled])
        return float(self.counts[filled] @ gaps / self.counts.sum())


@dataclass(frozen=True)
class Calibration:
    """Calibration of one set of predictions.

    pooled_*:     over all evaluated pairs together, labels mixed.
    mean_label_*: mean of the labels' own values.
    label_*:      one value per label, NaN for a label without evaluated pairs.
    """

    num_bins: int
    pooled_error: float
    mean_label_error: float
    label_errors: Values
    pooled_equal_mass_error: float
    mean_label_equal_mass_error: float
    label_equal_mass_errors: Values
    brier_score: float
    negative_log_likelihood: float
    pooled_curve: ReliabilityCurve

    def to_json(self) -> JsonObject:
        return to_json_object(self)


def reliability_curve(
    scores: npt.NDArray[Any], positive: Mask, num_bins: int = 15, binning: Binning = "equal_width"
) -> ReliabilityCurve:
    """Bin scores in [0, 1] and compare each bin's mean score with its share of positives.

    binning "equal_width": M bins of width 1/M.
    binning "equal_mass":  bounds at the quantiles of the scores, so that bins hold about as many pairs each;
                           equal scores stay in one bin, so there may be fewer than M.
    """
    if num_bins < 1:
        raise InputError(f"num_bins must be at least 1, got {num_bins}")
    if binning not in get_args(Binning):
        raise InputError(f"binning must be one of {', '.join(get_args(Binning))}, got {binning!r}")
    values = np.asarray(scores, dtype=np.float64)
    inner = np.linspace(0, 1, num_bins + 1)[1:-1]
    if binning == "equal_mass" and len(values):
        inner = np.unique(np.quantile(values, inner, method="higher"))
        inner = inner[inner > values.min()]
    bins = np.searchsorted(inner, values, side="right")
    counts = np.bincount(bins, minlength=len(inner) + 1)
    score_sums = np.bincount(bins, weights=values, minlength=len(inner) + 1)
    positive_sums = np.bincount(bins, weights=positive, minlength=len(inner) + 1)
    filled = np.maximum(counts, 1)
    return ReliabilityCurve(
        lower=np.concatenate([[0.0], inner]),
        upper=np.concatenate([inner, [1.0]]),
        counts=counts,
        mean_scores=np.where(counts > 0, score_sums / filled, np.nan),
        positive_rates=np.where(counts > 0, positive_sums / filled, np.nan),
    )


def calibration(predictions: Predictions, num_bins: int = 15) -> Calibration:
    """Measure calibration per label and overall."""
    evaluated, positive = predictions.evaluated, predictions.positive
    scores = predictions.scores.astype(np.float64)

    def error(pairs: tuple[Any, ...], binning: Binning) -> float:
        there = evaluated[pairs]
        curve = reliability_curve(scores[pairs][there], positive[pairs][there], num_bins, binning)
        return curve.expected_calibration_error

    columns = [(slice(None), label) for label in range(predictions.num_labels)]
    label_errors = np.array([error(column, "equal_width") for column in columns])
    equal_mass_errors = np.array([error(column, "equal_mass") for column in columns])
    pooled_curve = reliability_curve(scores[evaluated], positive[evaluated], num_bins)
    return Calibration(
        num_bins=num_bins,
        pooled_error=pooled_curve.expected_calibration_error,
        mean_label_error=mean_of_defined(label_errors),
        label_errors=label_errors,
        pooled_equal_mass_error=error((slice(None),), "equal_mass"),
        mean_label_equal_mass_error=mean_of_defined(equal_mass_errors),
        label_equal_mass_errors=equal_mass_errors,
        brier_score=mean_of_defined((scores[evaluated] - positive[evaluated]) ** 2),
        negative_log_likelihood=_negative_log_likelihood(scores[evaluated], positive[evaluated]),
        pooled_curve=pooled_curve,
    )


def _negative_log_likelihood(scores: Values, positive: Mask) -> float:
    """Mean of -log of the probability given to what is true.

    A float32 probability of exactly 0 or 1 that is wrong would make it infinite: the probability of the
    truth counts as at least 2^-24, the distance of the largest float32 below 1.
    """
    of_truth = np.where(positive, scores, 1 - scores)
    return mean_of_defined(-np.log(np.maximum(of_truth, 2.0**-24)))
