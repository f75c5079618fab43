"""Temperature scaling per label: calibrated probabilities, fitted on the validation split.

    p' = sigmoid(logit(p) / T + c)

T is the label's temperature, above 1 where the model is overconfident; c its bias, 0 unless requested. A
temperature preserves each label's ranking (average precision and AUC) and the decisions at 0.5; a bias
changes those decisions. Losses that treat present and absent labels differently, like the asymmetric loss,
shift probabilities to one side, which only a bias can correct.

A label with few positives hardly determines its temperature, so each label is shrunk towards the temperature
fitted on all labels together (and that one towards 1): with m positives (or negatives, if they are fewer) and
`prior_count` k, the label's own fit weighs about m / (m + k).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self, get_args

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.label_rules import calibrate, logit, sigmoid
from kmcl.evaluation.predictions import Mask, Predictions, Scores
from kmcl.evaluation.ranking import Values, mean_of_defined

LOWEST_TEMPERATURE, HIGHEST_TEMPERATURE = 0.05, 20.0


@dataclass(frozen=True)
class Temperatures:
    """Temperatures and biases of L labels.

    shared: labels without positives or without negatives, which use the values fitted on all labels together.
    """

    labels: tuple[str, ...]
    temperatures: Values
    biases: Values
    shared_temperature: float
    shared_bias: float
    shared: tuple[str, ...]

    def apply(self, scores: Scores) -> Scores:
        """Calibrate N x L probabilities."""
        return calibrate(logit(scores), self.temperatures, self.biases).astype(np.float32)

    def calibrate(self, predictions: Predictions) -> Predictions:
        """The same predictions with calibrated scores."""
        if predictions.labels != self.labels:
            raise InputError(
                f"temperatures are for labels {list(self.labels)}, "
                f"predictions have {list(predictions.labels)}"
            )
        return replace(predictions, scores=self.apply(predictions.scores))

    def to_json(self) -> JsonObject:
        return to_json_object(self)

    @classmethod
    def from_json(cls, fields: JsonObject) -> Self:
        """Rebuild what `to_json` gave; InputError when something is missing, unknown or out of range."""
        try:
            sequences = {name: tuple(fields[name]) for name in ("labels", "shared")}
            arrays = {name: np.asarray(fields[name], np.float64) for name in ("temperatures", "biases")}
            found = cls(**{**fields, **sequences, **arrays})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a set of temperatures: {error!r}") from error
        shape = (len(found.labels),)
        if not (found.temperatures.shape == found.biases.shape == shape):
            raise InputError(f"temperatures and biases must be {shape[0]} values each")
        if not ((found.temperatures > 0) & np.isfinite(found.temperatures) & np.isfinite(found.biases)).all():
            raise InputError(f"temperatures must be finite and above 0, got {found.temperatures.tolist()}")
        return found


def fit_temperatures(
    predictions: Predictions, with_bias: bool = False, prior_count: float = 10.0
) -> Temperatures:
    """Fit by likelihood on these predictions, which must not be those calibration is then judged on.

    with_bias:   fit c too (Platt scaling), else c = 0.
    prior_count: positives at which a label's own fit and that of all labels have equal weight; 0 uses each
    label alone.
    """
    if prior_count < 0:
        raise InputError(f"prior_count must be at least 0, got {prior_count}")
    evaluated, positive = predictions.evaluated, predictions.positive
    logits = logit(predictions.scores)
    overall = _fit(logits[evaluated], positive[evaluated], _Line(1.0, 0.0), with_bias, prior_count)
    lines, shared = [], []
    for index, label in enumerate(predictions.labels):
        there = evaluated[:, index]
        if not positive[there, index].any() or positive[there, index].all():
            lines.append(overall)
            shared.append(label)
        else:
            lines.append(_fit(logits[there, index], positive[there, index], overall, with_bias, prior_count))
    return Temperatures(
        labels=predictions.labels,
        temperatures=np.array([1 / line.slope for line in lines]),
        biases=np.array([line.bias for line in lines]),
        shared_temperature=1 / overall.slope,
        shared_bias=overall.bias,
        shared=tuple(shared),
    )


class _Line(NamedTuple):
    """The calibrated logit as a line in the logit: slope 1/T and bias c."""

    slope: float
    bias: float


def _fit(logits: Values, positive: Mask, prior: _Line, with_bias: bool, prior_count: float) -> _Line:
    """Newton's method with step halving on the penalised negative log-likelihood, which is convex.

    The penalty is a parabola in each parameter around the prior's, curved as the likelihood is there,
    times prior_count / min(positives, negatives).
    """
    rarer = min(int(positive.sum()), int((~positive).sum()))
    if rarer == 0:
        return prior
    centre = np.array(prior)
    free = np.array([True, with_bias])
    lowest, highest = (1 / HIGHEST_TEMPERATURE, -np.inf), (1 / LOWEST_TEMPERATURE, np.inf)
    curvature = np.diag(_derivatives(logits, positive, centre)[1])
    # The 1 keeps a finite optimum where all scores are saturated and the likelihood is flat.
    stiffness = (curvature + 1.0) * prior_count / rarer

    def objective(line: Values) -> float:
        scaled = line[0] * logits + line[1]
        # softplus(scaled) - target * scaled; np.logaddexp does the same five times as slowly.
        softplus = np.maximum(scaled, 0) + np.log(1 + np.exp(-np.abs(scaled)))
        likelihood = softplus.sum() - scaled[positive].sum()
        return float(likelihood + 0.5 * stiffness @ (line - centre) ** 2)

    line = centre.copy()
    value = objective(line)
    for _ in range(50):
        gradient, hessian = _derivatives(logits, positive, line)
        gradient += stiffness * (line - centre)
        hessian += np.diag(stiffness)
        outward = ((line <= lowest) & (gradient > 0)) | ((line >= highest) & (gradient < 0))
        moving = np.flatnonzero(free & ~outward)
        if not len(moving):
            break
        step = np.zeros(2)
        ridge = 1e-12 * np.eye(len(moving))
        step[moving] = np.linalg.solve(hessian[np.ix_(moving, moving)] + ridge, gradient[moving])
        size = 1.0
        next_line = np.clip(line - step, lowest, highest)
        # The remaining decrease is about half of this; below 1e-8 it is dominated by rounding of the sum.
        if gradient @ step < 1e-8:
            line = next_line
            break
        while (better := objective(next_line)) > value and size > 1e-6:
            size /= 2
            next_line = np.clip(line - size * step, lowest, highest)
        line, value = next_line, better
    return _Line(float(line[0]), float(line[1]))


def _derivatives(logits: Values, positive: Mask, line: Values) -> tuple[Values, Values]:
    """Gradient and 2 x 2 Hessian of the negative log-likelihood in slope and bias."""
    probabilities = sigmoid(line[0] * logits + line[1])
    residual = probabilities - positive
    weight = probabilities * (1 - probabilities)
    weighted = weight * logits
    cross = weighted.sum()
    # Products and sums, not `@`: threads of BLAS on a busy machine made this three times as slow.
    gradient = np.array([(residual * logits).sum(), residual.sum()])
    return gradient, np.array([[(weighted * logits).sum(), cross], [cross, weight.sum()]])


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
