from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from kmcl.evaluation.risk_bounds import binomial_p_values, hoeffding_bentkus_p_values, last_certified

# compute_hoeffding_bentkus_p_value of MAPIE 1.6.0: sum of losses, units, bound, p-value.
OF_MAPIE = [
    (0.0, 20, 0.1, 0.12157665459056914),
    (1.5, 40, 0.2, 0.009966304938961185),
    (3.0, 40, 0.2, 0.07736799416980854),
    (12.25, 100, 0.2, 0.12138401206956073),
    (19.99, 100, 0.2, 0.9999968746141599),
    (30.0, 100, 0.2, 1.0),
]


@pytest.mark.parametrize(("total", "units", "bound", "expected"), OF_MAPIE)
def test_hoeffding_bentkus_is_that_of_mapie(total, units, bound, expected):
    found = hoeffding_bentkus_p_values(np.array([total]), np.array([units]), bound)
    assert found[0] == pytest.approx(expected, rel=1e-9)


@given(wrong=st.integers(0, 50), units=st.integers(1, 50), bound=st.floats(0.01, 0.99))
@settings(max_examples=50, deadline=None)
def test_the_exact_p_value_is_scipys(wrong, units, bound):
    wrong = min(wrong, units)
    found = binomial_p_values(np.array([wrong]), np.array([units]), bound)
    assert found[0] == pytest.approx(stats.binom.cdf(wrong, units, bound), rel=1e-9)


def test_p_values_are_valid_by_enumeration():
    """With a risk just at the bound, P(p <= u) <= u over all outcomes of 12 losses."""
    outcomes = np.arange(13.0)
    probabilities = stats.binom.pmf(outcomes, 12, 0.3)
    for p_values in (binomial_p_values, hoeffding_bentkus_p_values):
        found = p_values(outcomes, np.full(13, 12), 0.3)
        assert (np.diff(found) >= 0).all()
        for level in found:
            assert probabilities[found <= level].sum() <= level + 1e-12


def test_hoeffding_bentkus_holds_for_losses_between_0_and_1():
    generator = np.random.default_rng(0)
    sums = generator.choice([0.0, 0.5, 1.0], p=[0.6, 0.3, 0.1], size=(4000, 30)).sum(axis=1)
    found = hoeffding_bentkus_p_values(sums, np.full(4000, 30), 0.25)
    assert (found <= 0.1).mean() <= 0.1
    assert (hoeffding_bentkus_p_values(sums, np.full(4000, 30), 0.45) <= 0.1).mean() > 0.5


def test_a_whole_number_stays_one_in_spite_of_rounding():
    thirds = np.array([np.nextafter(3.0, 4.0)])
    exact = hoeffding_bentkus_p_values(np.array([3.0]), np.array([40]), 0.2)
    np.testing.assert_allclose(hoeffding_bentkus_p_values(thirds, np.array([40]), 0.2), exact)


def test_nothing_is_known_without_losses():
    none = np.zeros(1)
    assert binomial_p_values(none, none, 0.5).tolist() == [1.0]
    assert hoeffding_bentkus_p_values(none, none, 0.5).tolist() == [1.0]


def test_the_sequence_by_hand():
    # MAPIE's control_fwer(..., 0.1, "fixed_sequence") gives [0, 1, 2] of these.
    assert last_certified(np.array([0.01, 0.02, 0.09, 0.2, 0.01]), {0}, 0.1) == 2
    assert last_certified(np.array([0.2, 0.0, 0.0]), {0}, 0.1) is None
    # The second start has 0.05 of its own, and 0.1 with what the first passes on.
    assert last_certified(np.array([0.2, 0.04, 0.05, 0.06]), {0, 1}, 0.1) == 2
    assert last_certified(np.array([0.05, 0.1, 0.1, 0.11]), {0, 1}, 0.1) == 2


def test_any_wrong_certificate_is_rarer_than_the_error():
    """Where every hypothesis is true, and p-values are uniform and independent: the worst for a sequence."""
    generator = np.random.default_rng(1)
    drawn = generator.random((4000, 12))
    wrong = np.mean([last_certified(row, {0, 4, 8}, 0.2) is not None for row in drawn])
    assert wrong == pytest.approx(1 - (1 - 0.2 / 3) ** 3, abs=0.02)
    assert wrong <= 0.2
