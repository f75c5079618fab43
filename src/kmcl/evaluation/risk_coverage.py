"""How well an uncertainty orders decisions: error detection and the risk-coverage curve."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmcl.evaluation.predictions import Mask
from kmcl.evaluation.ranking import OperatingPoints, Values, area_under_roc, operating_points


class ErrorDetection(NamedTuple):
    """How well one uncertainty predicts the errors.

    auroc:      probability that a wrong decision is more uncertain than a right one; 0.5 is chance, below 0.5
    is worse than chance. NaN when all decisions are right, or all wrong.
    aurc:       area under the risk-coverage curve: the error rate among the n most certain decisions, mean
                over all n. Lower is better; a random order gives the error rate itself.
    best_aurc:  the area for an order with all errors last.
    error_rate: share of wrong decisions.
    """

    auroc: float
    aurc: float
    best_aurc: float
    error_rate: float

    @property
    def gain(self) -> float:
        """Normalised gain over a random order: 1 best, 0 chance, negative worse than chance."""
        distance = self.error_rate - self.best_aurc
        return (self.error_rate - self.aurc) / distance if distance > 0 else float("nan")


def certainty_points(uncertainty: Values, wrong: Mask) -> OperatingPoints:
    """Decisions from the most certain on: how many are accepted at each uncertainty, and how many are wrong.

    Equal uncertainties are one point and count as in random order, in expectation, so that no result depends
    on how they are sorted.
    """
    return operating_points(-uncertainty, wrong)


def detect_errors(points: OperatingPoints) -> ErrorDetection:
    """Judge the order of decisions; all NaN when there is none."""
    if not len(points.scores):
        return ErrorDetection(*[float("nan")] * 4)
    num_decisions, num_wrong = int(points.predicted[-1]), int(points.true_positives[-1])
    return ErrorDetection(
        auroc=1 - area_under_roc(points),
        aurc=_area_under_risk(points),
        best_aurc=_best_area(num_decisions, num_wrong),
        error_rate=num_wrong / num_decisions,
    )


def risk_at_coverage(points: OperatingPoints, coverages: Values) -> Values:
    """Error rate among the most certain share of decisions, for each coverage in (0, 1]."""
    if not len(points.scores):
        return np.full(len(coverages), np.nan)
    accepted = coverages * points.predicted[-1]
    errors = np.interp(accepted, np.append(0, points.predicted), np.append(0, points.true_positives))
    return np.asarray(errors / accepted)


def _area_under_risk(points: OperatingPoints) -> float:
    """Mean over i = 1..n of E[errors among the i most certain] / i.

    Inside a group of equal uncertainties that begins after c decisions with e errors, and has m decisions
    with w errors, the expectation at i is e + w (i - c) / m. Its sum of ratios over the group is

        (e - w c / m) (H(c + m) - H(c)) + w,      H(i) = 1 + 1/2 + ... + 1/i
    """
    harmonic = _harmonic_numbers(int(points.predicted[-1]))
    ends = points.predicted.astype(np.int64)
    begins = np.append(0, ends[:-1])
    errors_before = np.append(0, points.true_positives[:-1])
    errors_here = points.true_positives - errors_before
    at_zero = errors_before - errors_here * begins / (ends - begins)
    sums = at_zero * (harmonic[ends] - harmonic[begins]) + errors_here
    return float(sums.sum() / ends[-1])


def _best_area(num_decisions: int, num_wrong: int) -> float:
    """The area when all errors come last: sum over i > n - w of (i - (n - w)) / i, over n."""
    harmonic = _harmonic_numbers(num_decisions)
    num_right = num_decisions - num_wrong
    return float((num_wrong - num_right * (harmonic[num_decisions] - harmonic[num_right])) / num_decisions)


def _harmonic_numbers(last: int) -> Values:
    """H(0), H(1), ..., H(last)."""
    return np.append(0.0, np.cumsum(1 / np.arange(1, last + 1)))
