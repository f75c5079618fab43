"""Tests of a risk by n independent losses: p-values, and which of many thresholds may be trusted at once.

A risk is the expectation of a loss in [0, 1]. A p-value here is small where the observed mean of the losses
is so low that a risk above `bound` is unlikely: with a risk above `bound`, P(p <= u) <= u for every u.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from kmcl.evaluation.ranking import Values

_ROUNDING = 1e-9
"""A sum of shares such as 1/3 that should be a whole number is not, by less than this."""


def binomial_p_values(num_wrong: Values, num_units: Values, bound: float) -> Values:
    """P(Bin(n, bound) <= k): exact for n losses of which k are 1 and the rest 0; 1 where n is 0."""
    from scipy.special import bdtr

    counts = np.maximum(num_units, 1)
    exact = bdtr(np.minimum(num_wrong, counts), counts.astype(np.int64), bound)
    return np.where(num_units > 0, exact, 1.0)


def hoeffding_bentkus_p_values(loss_sums: Values, num_units: Values, bound: float) -> Values:
    """For n losses anywhere in [0, 1], the smaller of two bounds (Bates et al. 2021); 1 where n is 0.

        Hoeffding  exp(-n h(min(r, b), b)),   h(r, b) = r log(r / b) + (1 - r) log((1 - r) / (1 - b))
        Bentkus    e P(Bin(n, b) <= ceil(n r))

    r is the mean loss, b the bound.
    """
    counts = np.maximum(num_units, 1).astype(np.float64)
    means = np.minimum(loss_sums / counts, bound)
    with np.errstate(divide="ignore", invalid="ignore"):
        missed = np.where(means > 0, means * np.log(means / bound), 0.0)
    divergence = missed + (1 - means) * np.log((1 - means) / (1 - bound))
    bentkus = np.e * binomial_p_values(np.ceil(loss_sums - _ROUNDING), num_units, bound)
    return np.where(num_units > 0, np.minimum(np.exp(-counts * divergence), np.minimum(bentkus, 1)), 1.0)


def last_certified(p_values: Values, starts: Collection[int], error: float) -> int | None:
    """The last of a sequence of hypotheses that may be rejected; None where none may.

    The probability of rejecting any true one is at most `error`, whatever their dependence: each start has an
    equal part of it, and a rejected hypothesis passes what it had to the next one (the fallback procedure,
    Wiens 2003). Sequence and starts must not depend on the data that the p-values come from.
    """
    last = None
    passed_on = 0.0
    for index, p_value in enumerate(p_values):
        budget = passed_on + (error / len(starts) if index in starts else 0.0)
        is_rejected = budget > 0 and p_value <= budget
        passed_on = budget if is_rejected else 0.0
        if is_rejected:
            last = index
    return last
