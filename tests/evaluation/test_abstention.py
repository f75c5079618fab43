from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.synthetic import from_arrays, make_predictions
from kmcl.errors import InputError
from kmcl.evaluation.abstention import choose_cutoff, error_probabilities, judge_abstention
from kmcl.evaluation.label_rules import LabelRules

RULES = LabelRules(("label0", "label1", "label2"), (0.4, 0.5, 0.7), (2.0, 1.0, 0.5), (0.5, 0.0, -1.0))


def test_the_probability_of_an_error_by_hand():
    rules = LabelRules(("a", "b"), thresholds=(0.3, 0.6))
    predictions = from_arrays([[0.4, 0.5]], [[1, 1]])
    errors, present = error_probabilities(rules, predictions)
    np.testing.assert_allclose(errors, [[0.6, 0.5]], atol=1e-6)
    assert present.tolist() == [[True, False]]


def test_a_decision_at_the_cutoff_is_not_left():
    rules = LabelRules(("a", "b"), thresholds=(0.5, 0.5))
    predictions = from_arrays([[0.25, 0.75], [0.375, 0.125]], [[0, 1], [1, 0]])
    found = judge_abstention(rules, predictions, 0.5, cutoff=0.25)
    assert found.share == 0.25  # the error of 0.375 alone; those of 0.25 stay
    assert found.remaining == 0


@given(seed=st.integers(0, 500), share=st.sampled_from([0.05, 0.1, 0.5]), has_groups=st.booleans())
@settings(max_examples=12, deadline=None)
def test_the_cutoff_is_the_lowest_that_leaves_little_enough(seed, share, has_groups):
    val = make_predictions(45, 3, seed=seed, decimals=2)
    if has_groups:  # which change nothing
        val = replace(val, groups=tuple(str(image // 2) for image in range(45)))
    errors, _ = error_probabilities(RULES, val)

    def is_allowed(cutoff: float) -> bool:
        shares = [np.mean([error > cutoff for error in of_image]) for of_image in errors]
        return (sum(shares) + 1) / (len(shares) + 1) <= share + 1e-9

    allowed = [cutoff for cutoff in np.unique(errors) if is_allowed(cutoff)]
    if allowed:
        assert choose_cutoff(RULES, val, share) == pytest.approx(min(allowed))
    else:
        with pytest.raises(InputError, match="takes at least"):
            choose_cutoff(RULES, val, share)


def test_the_share_is_kept_on_new_images_and_errors_become_fewer():
    # The probabilities of these images are known: logit p = 2 * signal * x + logit(prevalence).
    bias = float(np.log(0.2 / 0.8))
    thresholds = (float(1 / (1 + np.exp(bias / 3))),) * 3
    rules = LabelRules(RULES.labels, thresholds, (1 / 3,) * 3, (bias,) * 3)
    shares, errors, remaining = [], [], []
    for seed in range(30):
        val, test = make_predictions(150, 3, seed=seed), make_predictions(150, 3, seed=1000 + seed)
        found = judge_abstention(rules, test, 0.1, choose_cutoff(rules, val, 0.1))
        shares.append(found.share)
        errors.append(found.error)
        remaining.append(found.remaining)
    assert np.mean(shares) <= 0.1 + 3 * np.std(shares) / np.sqrt(30)
    assert np.mean(shares) > 0.08
    assert np.mean(remaining) < 0.6 * np.mean(errors)


def test_counts_by_hand():
    rules = LabelRules(("a", "b"), thresholds=(0.5, 0.5))
    predictions = from_arrays([[0.9, 0.6], [0.4, 0.1], [0.7, 0.2]], [[1, 0], [1, -1], [0, 0]])
    # Errors with 0.4 (b of the first), 0.4 (a of the second), 0.3 (a of the third); one pair is unknown.
    found = judge_abstention(rules, predictions, 0.3, 0.35)
    assert (found.wanted, found.cutoff) == (0.3, 0.35)
    assert found.share == pytest.approx(2 / 6)
    assert found.error == pytest.approx(3 / 5)
    assert found.remaining == pytest.approx(1 / 3)
    assert found.found == pytest.approx(2 / 3)
    nothing = judge_abstention(rules, from_arrays(np.zeros((0, 2)), np.zeros((0, 2))), 0.3, 0.35)
    assert np.isnan([nothing.share, nothing.error, nothing.remaining, nothing.found]).all()


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_a_share_out_of_range(share):
    with pytest.raises(InputError, match="the share to abstain from must be above 0 and below 1; got"):
        choose_cutoff(RULES, make_predictions(20, 3), share)


def test_too_small_a_val():
    with pytest.raises(InputError, match=r"0\.1 of the decisions takes at least 9 images .* there are 8"):
        choose_cutoff(RULES, make_predictions(8, 3), 0.1)
    choose_cutoff(RULES, make_predictions(9, 3), 0.1)
