"""The difference of one quantity between two disjoint sets of images, with an interval from resamples.

A report looks at many differences at once. Their intervals are made wide enough for all of them to hold at
the same time (Bonferroni): each has the level 1 - (1 - level) / number of differences.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values

MIN_UNITS = 10
"""Images (or groups) in each set, below which a difference is not judged."""


class Difference(NamedTuple):
    """An estimate with its interval."""

    estimate: float
    low: float
    high: float
    level: float

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0


class Contrast(NamedTuple):
    """One quantity in two sets of images.

    first, second: its values; NaN where a set has none.
    num_first:     images (or positives) of the first set that it is about.
    num_second:    of the second set.
    difference:    first minus second; None where a set has fewer than MIN_UNITS.
    """

    first: float
    second: float
    num_first: int
    num_second: int
    difference: Difference | None


class Strata(NamedTuple):
    """One quantity in both sets, as it is and in R resamples.

    estimates:  2.
    resamples:  2 x R, NaN where a resample does not define it.
    num_images: 2, how many images (or positives) it is about.
    num_units:  2, how many images, or groups of images, they belong to.
    """

    estimates: Values
    resamples: Values
    num_images: tuple[int, ...]
    num_units: tuple[int, ...]


def joint_level(num_comparisons: int, level: float = 0.95) -> float:
    """The level of each interval with which all of them hold at the same time with probability `level`."""
    if num_comparisons < 1:
        raise InputError(f"num_comparisons must be at least 1, got {num_comparisons}")
    return 1 - (1 - level) / num_comparisons


def contrast(strata: Strata, level: float) -> Contrast:
    """Interval of the difference: estimate - bias -+ t s, extended to contain the estimate.

    s is the deviation of the resampled differences, times sqrt(m / (m - 1)) for m units; t is the quantile of
    Student's distribution, its degrees of freedom by the formula of Welch and Satterthwaite. A set in which
    the quantity is 0 or 1 throughout gives resamples that do not vary, although another sample would; its
    variance is that of a share with one success and one failure added (Agresti and Caffo).
    """
    first, second = (float(value) for value in strata.estimates)
    num_first, num_second = strata.num_images
    found = Contrast(first, second, num_first, num_second, None)
    defined = ~np.isnan(strata.resamples).any(axis=0)
    if min(strata.num_units) < MIN_UNITS or np.isnan(strata.estimates).any() or defined.sum() < 2:
        return found
    resamples, units = strata.resamples[:, defined], np.array(strata.num_units, dtype=np.float64)
    variances = resamples.var(axis=1, ddof=1)
    constant = variances < 1e-14  # the rounding of equal values
    lowest = np.where(constant, _share_variances(strata.estimates, units), 0.0)
    differences = resamples[0] - resamples[1]
    variances = np.where(constant, lowest, variances)
    inflation = (variances * units / (units - 1)).sum() / variances.sum()
    error = float(np.sqrt(inflation * (differences.var(ddof=1) + lowest.sum())))
    freedom = float(variances.sum() ** 2 / (variances**2 / (units - 1)).sum())
    estimate = first - second
    bias = float(differences.mean()) - estimate
    return found._replace(difference=_interval(estimate, bias, error, freedom, level))


def mean_difference(values: Values, level: float) -> Difference | None:
    """Interval of the mean of paired differences, mean -+ t s / sqrt(n); None with fewer than MIN_UNITS.

    values: n differences, each within one image.
    """
    if len(values) < MIN_UNITS:
        return None
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    return _interval(float(values.mean()), 0.0, error, len(values) - 1, level)


def _share_variances(shares: Values, units: Values) -> Values:
    nearer = (shares * units + 1) / (units + 2)
    return np.asarray(nearer * (1 - nearer) / (units + 2))


def _interval(estimate: float, bias: float, error: float, freedom: float, level: float) -> Difference:
    from scipy.special import stdtrit

    reach = float(stdtrit(freedom, (1 + level) / 2)) * error
    low, high = estimate - bias - reach, estimate - bias + reach
    return Difference(estimate, max(min(low, estimate), -1.0), min(max(high, estimate), 1.0), level)
