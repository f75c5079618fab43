"""Intervals of differences: against scipy, in degenerate cases, and by how often they hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from kmcl.errors import InputError
from kmcl.evaluation.contrasts import MIN_UNITS, Difference, Strata, contrast, joint_level, mean_difference


def resampled_shares(first: np.ndarray, second: np.ndarray, seed: int, num_resamples: int = 200) -> Strata:
    """The shares of two independent sets of 0 and 1."""
    generator = np.random.default_rng(seed)
    resamples = [
        each[generator.integers(len(each), size=(num_resamples, len(each)))].mean(axis=1)
        for each in (first, second)
    ]
    counts = (len(first), len(second))
    return Strata(np.array([first.mean(), second.mean()]), np.stack(resamples), counts, counts)


@pytest.mark.parametrize(
    ("low", "high", "excludes"), [(0.1, 0.4, True), (-0.4, -0.1, True), (-0.1, 0.4, False), (0.0, 0.4, False)]
)
def test_an_interval_excludes_zero_on_either_side(low: float, high: float, excludes: bool):
    assert Difference((low + high) / 2, low, high, 0.95).excludes_zero == excludes


@pytest.mark.parametrize("sign", [1, -1])
def test_no_interval_of_shares_goes_beyond_1(sign: int):
    found = mean_difference(sign * np.array([1.0] * 9 + [-1.0]), 0.95)
    assert found is not None
    assert found.estimate == pytest.approx(0.8 * sign)
    assert (found.high if sign == 1 else -found.low) == 1.0


def test_the_level_of_many_intervals():
    assert joint_level(1) == pytest.approx(0.95)
    assert joint_level(10) == pytest.approx(0.995)
    with pytest.raises(InputError, match="num_comparisons must be at least 1, got 0"):
        joint_level(0)


def test_the_mean_of_paired_differences_has_students_interval():
    values = np.random.default_rng(0).normal(0.1, 0.2, size=15)
    found = mean_difference(values, 0.99)
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.99)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.estimate == pytest.approx(values.mean())
    assert mean_difference(values[: MIN_UNITS - 1], 0.99) is None


def test_the_interval_of_two_shares_is_that_of_welch():
    generator = np.random.default_rng(1)
    first, second = generator.random(400) < 0.4, generator.random(150) < 0.2
    found = contrast(resampled_shares(first, second, 2, num_resamples=20_000), 0.95).difference
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=0.004)


def test_small_sets_and_undefined_values_are_not_judged():
    few, many = np.ones(MIN_UNITS - 1), np.zeros(100)
    assert contrast(resampled_shares(few, many, 0), 0.95).difference is None
    enough = resampled_shares(np.append(few, 0), many, 0)
    assert contrast(enough, 0.95).difference is not None
    undefined = enough._replace(estimates=np.array([np.nan, 0.0]))
    assert contrast(undefined, 0.95).difference is None
    never = enough._replace(resamples=np.full((2, 50), np.nan))
    assert contrast(never, 0.95).difference is None


def test_shares_of_0_and_1_are_uncertain_although_no_resample_varies():
    strata = resampled_shares(np.zeros(10), np.zeros(500), 0)
    found = contrast(strata, 0.95).difference
    assert found.estimate == 0
    assert found.low < -0.05
    assert found.high > 0.05
    assert not found.excludes_zero
    wide = contrast(resampled_shares(np.ones(10), np.zeros(500), 0), 0.95).difference
    assert wide.excludes_zero
    assert wide.low < 0.9


def test_resamples_that_define_nothing_are_left_out():
    strata = resampled_shares(np.arange(40) % 2, np.arange(60) % 3 == 0, 0)
    gaps = np.concatenate([strata.resamples, np.array([[np.nan, 0.5], [0.3, np.nan]])], axis=1)
    assert contrast(strata._replace(resamples=gaps), 0.95) == contrast(strata, 0.95)


@pytest.mark.parametrize("shares", [(0.3, 0.3), (0.05, 0.05), (0.9, 0.5)])
def test_the_interval_holds_as_often_as_it_says(shares):
    generator = np.random.default_rng(5)
    truth = shares[0] - shares[1]
    held = 0
    for trial in range(300):
        first, second = generator.random(25) < shares[0], generator.random(120) < shares[1]
        found = contrast(resampled_shares(first, second, trial), 0.95).difference
        held += found.low <= truth <= found.high
    # 95 % of 300 is 285; the deviation of the count is 3.8. Small shares are cautious.
    assert held >= 272
