"""`evaluate`: that each figure stands in its place, and the groups of labels by frequency."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.decisions import decide, decide_top_k, decision_metrics
from kmcl.evaluation.metrics import evaluate, frequency_groups, image_ranking, rank
from kmcl.evaluation.ranking import eleven_point_average_precision, label_points


def test_evaluate_puts_each_figure_in_its_place() -> None:
    predictions = make_predictions(num_labels=5)
    thresholds = np.array([0.3, 0.4, 0.5, 0.6, 0.7])
    found = evaluate(predictions, thresholds, top_k=2)
    truth, scores = predictions.targets, predictions.scores
    assert found.mean_average_precision == pytest.approx(average_precision_score(truth, scores))
    assert found.mean_auc == pytest.approx(roc_auc_score(truth, scores))
    assert found.threshold is None
    assert found.k == 2
    assert found.num_images == 200
    assert found.num_pairs == 1000
    for attribute, decisions in (
        ("at_threshold", decide(scores, thresholds)),
        ("top_k", decide_top_k(predictions, 2)),
        ("top_k_at_threshold", decide_top_k(predictions, 2, thresholds)),
    ):
        assert getattr(found, attribute).CF1 == decision_metrics(predictions, decisions).CF1
    by_threshold = decision_metrics(predictions, decide(scores, thresholds))
    for index, label in enumerate(found.labels):
        assert label.label == predictions.labels[index]
        assert label.num_positives == truth[:, index].sum()
        assert label.num_negatives == (truth[:, index] == 0).sum()
        assert label.average_precision == pytest.approx(
            average_precision_score(truth[:, index], scores[:, index])
        )
        assert label.auc == pytest.approx(roc_auc_score(truth[:, index], scores[:, index]))
        assert label.threshold == thresholds[index]
        assert (label.precision, label.recall, label.f1) == (
            by_threshold.precision[index],
            by_threshold.recall[index],
            by_threshold.f1[index],
        )


def test_eleven_points_and_defaults() -> None:
    predictions = with_gaps(make_predictions(num_labels=4))
    found = evaluate(predictions)
    expected = [eleven_point_average_precision(points) for points in label_points(predictions)]
    assert [row.eleven_point_average_precision for row in found.labels] == expected
    assert found.mean_eleven_point_average_precision == pytest.approx(np.mean(expected))
    assert (found.threshold, found.k) == (0.5, 3)
    assert found.num_pairs == predictions.evaluated.sum() < 800
    assert found.image_ranking == image_ranking(predictions)
    decided = predictions.scores > 0.3
    by_others = rank(predictions).evaluate(decided, np.array([0.1, 0.2, 0.3, 0.4]))
    assert [row.threshold for row in by_others.labels] == [0.1, 0.2, 0.3, 0.4]
    assert by_others.threshold is None
    assert by_others.at_threshold.CF1 == decision_metrics(predictions, decided).CF1


def test_labels_that_define_nothing_are_named_and_left_out() -> None:
    predictions = from_arrays(
        [[0.9, 0.9, 0.9], [0.8, 0.1, 0.1], [0.7, 0.2, 0.3]],
        [[1, 0, 1], [0, 0, 1], [1, 0, 1]],
    )
    found = evaluate(predictions)
    assert found.labels_without_positives == ("label1",)
    assert found.labels_without_negatives == ("label2",)
    assert found.mean_average_precision == pytest.approx(((1 + 2 / 3) / 2 + 1) / 2)
    assert found.mean_auc == 0.5
    written = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert written["labels"][1]["average_precision"] is None
    assert written["labels"][0]["average_precision"] == found.labels[0].average_precision
    assert written["at_threshold"]["precision"] == [2 / 3, None, 1.0]
    assert written["image_ranking"]["num_images_with_both"] == 3
    assert written["threshold"] == 0.5


def test_dropping_images_nobody_annotated_changes_nothing() -> None:
    predictions = with_gaps(make_predictions())
    targets = predictions.targets.copy()
    targets[::3] = -1
    kept = np.arange(len(targets)) % 3 != 0
    with_unknown = evaluate(replace(predictions, targets=targets)).to_json()
    dropped = evaluate(
        replace(
            predictions,
            names=tuple(np.array(predictions.names)[kept]),
            **{name: getattr(predictions, name)[kept] for name in ("scores", "targets", "ignored", "sigma")},
        )
    ).to_json()
    assert with_unknown.pop("num_images") == 200
    assert dropped.pop("num_images") == kept.sum()
    assert with_unknown == dropped


def test_nothing_evaluated_is_undefined_not_an_error() -> None:
    found = evaluate(from_arrays([[0.5, 0.5]], [[-1, -1]]))
    assert np.isnan(found.mean_average_precision)
    assert np.isnan(found.image_ranking.ranking_loss)
    assert found.labels_without_positives == ("label0", "label1")
    json.dumps(found.to_json(), allow_nan=False)
    assert np.isnan(evaluate(make_predictions(num_images=0)).mean_average_precision)


def test_terciles_by_hand() -> None:
    groups = frequency_groups(
        ("a", "b", "c", "d", "e", "f"),
        np.array([0.1, 0.2, np.nan, 0.4, 0.5, 0.6]),
        np.array([50, 1, 2, 900, 40, 800]),
    )
    assert [group.name for group in groups] == ["rare", "medium", "frequent"]
    assert [group.labels for group in groups] == [("b", "c"), ("a", "e"), ("d", "f")]
    assert [group.mean_average_precision for group in groups] == pytest.approx([0.2, 0.3, 0.5])
    assert [(group.lowest_count, group.highest_count) for group in groups] == [(1, 2), (40, 50), (800, 900)]


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_groups_hold_every_label_once_and_follow_the_counts(counts: list[int]) -> None:
    labels = tuple(str(index) for index in range(len(counts)))
    groups = frequency_groups(labels, np.ones(len(counts)), np.array(counts))
    assert sorted(sum((group.labels for group in groups), ())) == sorted(labels)
    counts_of = [{counts[int(label)] for label in group.labels} for group in groups]
    for lower, higher in ((0, 1), (1, 2), (0, 2)):
        if counts_of[lower] and counts_of[higher]:
            assert max(counts_of[lower]) < min(counts_of[higher])
    if len(set(counts)) == len(counts):
        sizes = [len(group.labels) for group in groups]
        assert max(sizes) - min(sizes) <= 1


def test_equal_counts_are_all_medium() -> None:
    rare, medium, frequent = frequency_groups(("a", "b"), np.array([0.5, 1.0]), np.array([3, 3]))
    assert medium.labels == ("a", "b")
    assert rare.labels == frequent.labels == ()
    assert rare.lowest_count is None
    assert np.isnan(rare.mean_average_precision)


def test_given_counts_decide_the_groups() -> None:
    predictions = make_predictions(num_labels=3)
    by_training = evaluate(predictions, label_counts=np.array([30, 20, 10]))
    assert evaluate(predictions, label_counts=[30, 20, 10]).frequency_groups == by_training.frequency_groups
    assert [group.labels for group in by_training.frequency_groups] == [("label2",), ("label1",), ("label0",)]
    assert by_training.frequency_counts_from == "training"
    assert evaluate(predictions).frequency_counts_from == "evaluated"
    with pytest.raises(InputError, match="3 numbers"):
        evaluate(predictions, label_counts=np.array([30, 20]))
    with pytest.raises(InputError, match=r"at least 0, got \[30, 20, -1\]"):
        evaluate(predictions, label_counts=np.array([30, 20, -1]))
    assert evaluate(predictions, label_counts=np.array([30, 20, 0])).frequency_groups[0].lowest_count == 0


def test_a_single_threshold_is_reported() -> None:
    found = evaluate(make_predictions(), 0.8)
    assert found.threshold == 0.8
    assert {label.threshold for label in found.labels} == {0.8}
