"""Average precision, AUC and the metrics per image, against scikit-learn and torchmetrics."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import (
    average_precision_score,
    coverage_error,
    label_ranking_average_precision_score,
    label_ranking_loss,
    roc_auc_score,
)

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.encoders.torchvision_operators import declare_missing_operators
from kmcl.evaluation.metrics import image_ranking
from kmcl.evaluation.ranking import (
    area_under_roc,
    average_precision,
    eleven_point_average_precision,
    label_average_precisions,
    label_points,
    mean_average_precision,
    operating_points,
    per_label,
)

# Few distinct scores, so that ties are the rule.
label_columns = st.integers(1, 40).flatmap(
    lambda length: st.tuples(
        arrays(np.float32, length, elements=st.sampled_from([0.0, 0.125, 0.25, 0.5, 0.75, 1.0])),
        arrays(np.bool_, length),
    )
)


@given(label_columns)
def test_average_precision_is_scikit_learns(column) -> None:
    scores, positive = column
    ours = average_precision(operating_points(scores, positive))
    if positive.any():
        assert ours == pytest.approx(average_precision_score(positive, scores), abs=1e-12)
    else:
        assert np.isnan(ours)


@given(label_columns)
def test_area_under_roc_is_scikit_learns(column) -> None:
    scores, positive = column
    ours = area_under_roc(operating_points(scores, positive))
    if 0 < positive.sum() < len(positive):
        assert ours == pytest.approx(roc_auc_score(positive, scores), abs=1e-12)
    else:
        assert np.isnan(ours)


@given(label_columns)
def test_eleven_point_average_precision_is_its_definition(column) -> None:
    scores, positive = column
    ours = eleven_point_average_precision(operating_points(scores, positive))
    if not positive.any():
        assert np.isnan(ours)
        return
    best = []
    for tenths in range(11):
        reaching = []
        for threshold in scores:
            taken = scores >= threshold
            if 10 * (taken & positive).sum() >= tenths * positive.sum():
                reaching.append((taken & positive).sum() / taken.sum())
        best.append(max(reaching))
    assert ours == pytest.approx(np.mean(best), abs=1e-12)


@given(label_columns, st.integers(0, 2**32 - 1))
def test_order_of_images_and_monotone_changes_of_scores_do_not_matter(column, seed: int) -> None:
    scores, positive = column
    shuffled = np.random.default_rng(seed).permutation(len(scores))
    for metric in (average_precision, area_under_roc, eleven_point_average_precision):
        expected = metric(operating_points(scores, positive))
        assert metric(operating_points(scores[shuffled], positive[shuffled])) == pytest.approx(
            expected, nan_ok=True
        )
        assert metric(operating_points(np.exp(3 * scores), positive)) == pytest.approx(expected, nan_ok=True)


def test_average_precision_by_hand() -> None:
    # Ranking + - + -: precision 1 at recall 1/2, 2/3 at recall 1.
    points = operating_points(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, False, True, False]))
    assert average_precision(points) == pytest.approx((1 + 2 / 3) / 2)
    # Interpolated: 1 up to recall 0.5 (six points), 2/3 beyond (five).
    assert eleven_point_average_precision(points) == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)
    assert area_under_roc(points) == pytest.approx(3 / 4)


def test_gaps_are_as_if_the_pairs_were_not_there() -> None:
    predictions = with_gaps(make_predictions(decimals=2))
    for label, points in enumerate(label_points(predictions)):
        there = (predictions.targets[:, label] >= 0) & ~predictions.ignored[:, label]
        scores, truth = predictions.scores[there, label], predictions.targets[there, label]
        assert len(scores) < len(predictions)
        assert average_precision(points) == pytest.approx(average_precision_score(truth, scores), abs=1e-12)
        assert area_under_roc(points) == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)


def test_a_difficult_object_neither_helps_nor_harms() -> None:
    """VOC's rule: an image that shows a label only as difficult is no positive and no negative of it."""
    scores = [[0.9], [0.8], [0.7], [0.6]]
    targets = [[1], [1], [0], [1]]
    ignoring = from_arrays(scores, targets, ignored=[[False], [True], [False], [False]])
    assert mean_average_precision(ignoring) == pytest.approx((1 + 2 / 3) / 2)
    assert mean_average_precision(from_arrays(scores, targets)) == pytest.approx((1 + 1 + 3 / 4) / 3)


def test_a_label_without_positives_is_not_counted_as_zero() -> None:
    predictions = from_arrays([[0.9, 0.9], [0.1, 0.1]], [[1, 0], [0, 0]])
    values = label_average_precisions(predictions)
    assert values[0] == 1
    assert np.isnan(values[1])
    assert mean_average_precision(predictions) == 1


def test_the_whole_matrix_agrees_with_torchmetrics() -> None:
    declare_missing_operators()
    from torchmetrics.functional.classification import multilabel_auroc, multilabel_average_precision

    predictions = with_gaps(make_predictions(500, 9, decimals=2))
    truth = torch.from_numpy(np.where(predictions.evaluated, predictions.targets, -1).astype(np.int64))
    scores = torch.from_numpy(predictions.scores)
    options = {"num_labels": 9, "average": None, "ignore_index": -1}
    np.testing.assert_allclose(
        label_average_precisions(predictions),
        multilabel_average_precision(scores, truth, **options).numpy(),
        atol=1e-6,
    )
    np.testing.assert_allclose(
        per_label(area_under_roc, label_points(predictions)),
        multilabel_auroc(scores, truth, **options).numpy(),
        atol=1e-6,
    )


matrices = st.tuples(st.integers(1, 8), st.integers(2, 6)).flatmap(
    lambda shape: st.tuples(
        arrays(np.float32, shape, elements=st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])),
        arrays(np.int8, shape, elements=st.sampled_from([0, 1])),
    )
)


@given(matrices)
@settings(max_examples=60)
def test_image_metrics_are_scikit_learns_over_the_images_that_define_them(matrix) -> None:
    scores, targets = matrix
    ours = image_ranking(from_arrays(scores, targets))
    some = targets.any(axis=1)
    both = some & ~targets.all(axis=1)
    assert ours.num_images_with_positives == some.sum()
    assert ours.num_images_with_both == both.sum()
    if both.any():
        assert ours.ranking_loss == pytest.approx(label_ranking_loss(targets[both], scores[both]))
    else:
        assert np.isnan(ours.ranking_loss)
    if some.any():
        assert ours.coverage == pytest.approx(coverage_error(targets[some], scores[some]))
        assert ours.label_ranking_average_precision == pytest.approx(
            label_ranking_average_precision_score(targets[some], scores[some])
        )
    else:
        assert np.isnan(ours.coverage)


def test_image_metrics_leave_unknown_labels_out() -> None:
    # Of the second image only labels 1 (present, 0.4), 2 (absent, 0.6) and 3 (absent, 0.1) are known.
    scores = [[0.9, 0.5, 0.1, 0.2], [0.8, 0.4, 0.6, 0.1]]
    targets = [[1, 0, 0, 0], [-1, 1, 0, 0]]
    ours = image_ranking(from_arrays(scores, targets))
    assert ours.ranking_loss == pytest.approx((0 + 1 / 2) / 2)
    assert ours.coverage == pytest.approx((1 + 2) / 2)
    assert ours.label_ranking_average_precision == pytest.approx((1 + 1 / 2) / 2)


def test_image_metrics_in_many_blocks_equal_those_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    predictions = with_gaps(make_predictions(300, 7, prevalence=0.5))
    in_one = image_ranking(predictions)
    for at_once in (1, 50):
        monkeypatch.setattr("kmcl.evaluation.metrics._COMPARISONS_AT_ONCE", at_once)
        assert image_ranking(predictions) == in_one


def test_no_pair_has_no_metric() -> None:
    points = operating_points(np.empty(0, np.float32), np.empty(0, np.bool_))
    assert [len(each) for each in points] == [0, 0, 0]
    for metric in (average_precision, area_under_roc, eleven_point_average_precision):
        assert np.isnan(metric(points))
