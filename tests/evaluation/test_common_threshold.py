"""The threshold that is common to all labels, and how much of it a label's own threshold takes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.evaluation.decisions import decide, decision_metrics
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.temperature import Temperatures
from kmcl.evaluation.thresholds import choose_thresholds, common_threshold


def of_columns(*columns: list[float]) -> Predictions:
    """The first image of each label is its only positive."""
    scores = np.array(columns).T
    return from_arrays(scores, np.arange(len(scores))[:, None] * np.ones_like(scores) == 0)


@given(seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_no_other_common_threshold_is_better(seed: int) -> None:
    predictions = with_gaps(make_predictions(50, 4, seed=seed, prevalence=0.15, signal=0.7))
    qualities = {}
    for percent in range(1, 100):
        metrics = decision_metrics(predictions, decide(predictions.scores, percent / 100))
        qualities[percent / 100] = np.nanmean(metrics.f1)
    assert qualities[common_threshold(predictions)] == pytest.approx(max(qualities.values()))


def test_a_common_threshold_is_in_the_middle_of_equals() -> None:
    predictions = from_arrays([[0.905, 0.805], [0.105, 0.205]], [[1, 1], [0, 0]])
    assert common_threshold(predictions) == 0.51


def test_every_percent_from_1_to_99_can_be_the_best() -> None:
    # At 1 % the first label is right, and the second is predicted everywhere; elsewhere the first is lost.
    assert common_threshold(of_columns([0.015] + [0.005] * 5, [0.9] + [0.3] * 5)) == 0.01
    assert common_threshold(of_columns([0.995, 0.985])) == 0.99
    assert common_threshold(of_columns([1.0, 0.985])) == 0.99
    assert common_threshold(of_columns([0.505, 0.495])) == 0.5


def test_zero_is_never_the_common_threshold() -> None:
    assert common_threshold(from_arrays([[0.0], [0.505]], [[1], [1]])) == 0.26


def test_a_score_just_below_a_percent_is_below_it() -> None:
    # 0.29 in float32 is 0.28999999, which does not reach 29 %: both images are told apart by no percent.
    assert common_threshold(of_columns([0.29, 0.28])) == 0.15


def test_a_label_without_positives_has_no_say() -> None:
    told, untold = [[0.7, 0.2], [0.3, 0.9]], [[1, 0], [0, 0]]
    assert common_threshold(from_arrays(told, untold)) == common_threshold(
        from_arrays([[0.7], [0.3]], [[1], [0]])
    )


def test_a_saturated_threshold_counts_as_one_in_a_thousand() -> None:
    """Its own logit is -87; with weight 1/6 it would carry the mean away."""
    rows = [(0.0, 1), (0.0, 0), (0.7, 1), (0.6, 1)]
    predictions = from_arrays([[score] for score, _ in rows], [[target] for _, target in rows])
    as_it_is = Temperatures(predictions.labels, np.ones(1), np.zeros(1), 1.0, 0.0, ())
    chosen = choose_thresholds(predictions, calibration=as_it_is)
    common = common_threshold(predictions)
    mixed = (-np.log(999) + 5 * np.log(common / (1 - common))) / 6
    assert chosen.common == common
    assert chosen.support == (1,)
    assert chosen.values[0] == pytest.approx(1 / (1 + np.exp(-mixed)), rel=1e-6)
    other = Temperatures(predictions.labels, np.full(1, 2.0), np.full(1, 0.3), 1.0, 0.0, ())
    assert choose_thresholds(predictions, calibration=other).common != common


def test_any_prior_count_above_zero_has_a_common_threshold() -> None:
    predictions = make_predictions(100, 3)
    assert choose_thresholds(predictions, prior_count=0.5).common is not None
    assert choose_thresholds(predictions, prior_count=0).common is None
