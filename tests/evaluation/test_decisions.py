"""CP, CR, CF1, OP, OR, OF1 at thresholds and for the top k."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import precision_recall_fscore_support

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.decisions import decide, decide_top_k, decision_metrics


def test_decisions_by_hand() -> None:
    predictions = from_arrays(
        scores=[[0.9, 0.6, 0.2], [0.8, 0.1, 0.7], [0.3, 0.2, 0.6]],
        targets=[[1, 0, 1], [0, 1, 1], [1, 0, 1]],
    )
    found = decision_metrics(predictions, decide(predictions.scores, 0.5))
    # Label 0: predicted 2, right 1 of 2 positives. Label 1: predicted 1, right 0 of 1. Label 2: 2, 2 of 3.
    assert pytest.approx((1 / 2 + 0 + 1) / 3) == found.CP
    assert pytest.approx((1 / 2 + 0 + 2 / 3) / 3) == found.CR
    assert pytest.approx(2 * found.CP * found.CR / (found.CP + found.CR)) == found.CF1
    assert pytest.approx(3 / 5) == found.OP
    assert pytest.approx(3 / 6) == found.OR
    assert pytest.approx(6 / 11) == found.OF1
    assert found.f1.tolist() == pytest.approx([1 / 2, 0, 4 / 5])
    assert found.never_predicted == ()


def test_cf1_is_not_the_mean_of_f1() -> None:
    predictions = make_predictions()
    found = decision_metrics(predictions, decide(predictions.scores, 0.5))
    assert abs(found.CF1 - found.f1.mean()) > 1e-3


@pytest.mark.parametrize("threshold", [0.0, 0.2, 0.5, 0.8, 1.0])
def test_decision_metrics_are_scikit_learns(threshold: float) -> None:
    predictions = make_predictions(decimals=1)
    decisions = decide(predictions.scores, threshold)
    found = decision_metrics(predictions, decisions)
    macro = precision_recall_fscore_support(predictions.targets, decisions, average="macro", zero_division=0)
    micro = precision_recall_fscore_support(predictions.targets, decisions, average="micro", zero_division=0)
    each = precision_recall_fscore_support(predictions.targets, decisions, zero_division=0)
    assert pytest.approx(macro[:2]) == (found.CP, found.CR)
    assert pytest.approx(micro[:3]) == (found.OP, found.OR, found.OF1)
    for ours, theirs in zip((found.precision, found.recall, found.f1), each[:3], strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_gaps_are_as_if_the_pairs_were_not_there() -> None:
    predictions = with_gaps(make_predictions())
    found = decision_metrics(predictions, decide(predictions.scores, 0.5))
    there = predictions.evaluated
    micro = precision_recall_fscore_support(
        predictions.targets[there], predictions.scores[there] >= 0.5, average="binary"
    )
    assert pytest.approx(micro[:3]) == (found.OP, found.OR, found.OF1)
    for label in range(predictions.num_labels):
        truth, scores = (array[there[:, label], label] for array in (predictions.targets, predictions.scores))
        single = precision_recall_fscore_support(truth, scores >= 0.5, average="binary")
        assert (found.precision[label], found.recall[label], found.f1[label]) == pytest.approx(single[:3])


def test_a_score_at_its_threshold_is_a_yes() -> None:
    scores = np.array([[0.5, 0.25]], dtype=np.float32)
    assert decide(scores, 0.5).tolist() == [[True, False]]
    assert decide(scores, np.array([0.75, 0.25])).tolist() == [[False, True]]


def test_a_label_without_positives_leaves_cp_and_cr_but_its_false_positives_count_overall() -> None:
    predictions = from_arrays([[0.9, 0.9], [0.1, 0.9]], [[1, 0], [0, 0]])
    found = decision_metrics(predictions, decide(predictions.scores, 0.5))
    assert (found.CP, found.CR, found.CF1) == (1, 1, 1)
    assert pytest.approx(1 / 3) == found.OP
    assert np.isnan([found.precision[1], found.recall[1], found.f1[1]]).all()


def test_a_label_never_predicted_counts_as_zero_precision_and_is_named() -> None:
    predictions = from_arrays([[0.9, 0.1, 0.1], [0.1, 0.1, 0.1]], [[1, 1, 0], [0, 0, 0]])
    found = decision_metrics(predictions, decide(predictions.scores, 0.5))
    assert found.CP == 0.5
    assert found.OP == 1
    # The third label is never predicted either, and rightly so: it has no positives.
    assert found.never_predicted == ("label1",)


def test_predicting_nothing_is_zero_and_having_nothing_is_undefined() -> None:
    predictions = from_arrays([[0.1], [0.2]], [[1], [0]])
    nothing = decision_metrics(predictions, decide(predictions.scores, 0.5))
    assert (nothing.CP, nothing.CF1, nothing.OP, nothing.OF1) == (0, 0, 0, 0)
    undefined = decision_metrics(from_arrays([[0.1]], [[0]]), np.array([[True]]))
    assert np.isnan([undefined.CP, undefined.CR, undefined.CF1, undefined.OP, undefined.OF1]).all()


def test_top_k_takes_the_highest_whatever_their_values() -> None:
    predictions = from_arrays([[0.4, 0.3, 0.1, 0.2], [0.9, 0.8, 0.7, 0.95]], [[1, 0, 0, 0], [1, 1, 0, 1]])
    assert decide_top_k(predictions, 2).tolist() == [[True, True, False, False], [True, False, False, True]]
    found = decision_metrics(predictions, decide_top_k(predictions, 3))
    assert pytest.approx(4 / 6) == found.OP
    assert found.OR == 1


def test_top_k_with_a_threshold_keeps_only_what_reaches_it() -> None:
    predictions = from_arrays([[0.4, 0.6, 0.1, 0.2], [0.9, 0.8, 0.7, 0.95]], [[1, 0, 0, 0], [1, 1, 0, 1]])
    decisions = decide_top_k(predictions, 2, thresholds=0.5)
    assert decisions.tolist() == [[False, True, False, False], [True, False, False, True]]


def test_an_unknown_label_takes_no_place_in_the_top_k() -> None:
    predictions = from_arrays([[0.9, 0.8, 0.7, 0.6]], [[-1, 1, 0, 1]], ignored=[[False, False, True, False]])
    assert decide_top_k(predictions, 2).tolist() == [[False, True, False, True]]
    assert decide_top_k(predictions, 3).tolist() == [[False, True, False, True]]


def test_equal_scores_go_to_the_first_label_and_large_k_takes_all() -> None:
    predictions = from_arrays([[0.5, 0.5, 0.5]], [[0, 0, 1]])
    assert decide_top_k(predictions, 2).tolist() == [[True, True, False]]
    assert decide_top_k(predictions, 5).all()
    many = from_arrays(np.full((3, 300), 0.5), np.zeros((3, 300)))
    assert decide_top_k(many, 7)[:, :7].all()


@pytest.mark.parametrize(
    ("thresholds", "message"),
    [
        (np.array([0.5, 0.5]), r"one value or 6, got shape \(2,\)"),
        (1.5, r"in \[0, 1\], got 1\.5"),
        (np.array([0.5] * 5 + [np.nan]), "got nan"),
        (np.array([0.5] * 5 + [1.25]), r"in \[0, 1\], got 1\.25"),
        (np.array([0.0, 1.0, 0.5, -0.25, 0.5, 0.5]), r"in \[0, 1\], got -0\.25"),
    ],
)
def test_impossible_thresholds_are_refused(thresholds, message: str) -> None:
    with pytest.raises(InputError, match=message):
        decide(make_predictions().scores, thresholds)


def test_top_zero_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1, got 0"):
        decide_top_k(make_predictions(), 0)
