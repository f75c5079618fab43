"""Labels with and without a co-occurring one: against loops over copied images, and planted cases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.data.cooccurrence import find_cooccurring_labels
from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import rank_label
from kmcl.evaluation.contrasts import joint_level
from kmcl.evaluation.leaning import LabelPair, _average_precisions, _Stratum, measure_leaning, usual_pairs

PAIR = LabelPair(0, 1, 0.8, 0.3)


def of_rows(predictions, decided, rows, pair, present, prevalence):
    """AP, recall and false-positive rate of one stratum among some (copied) images, image by image."""
    scores, truth, given = [], [], []
    for row in rows:
        label, other = predictions.targets[row, pair.label], predictions.targets[row, pair.other]
        known = predictions.evaluated[row, pair.label] and predictions.evaluated[row, pair.other]
        if known and other == int(present):
            scores.append(predictions.scores[row, pair.label])
            truth.append(int(label))
            given.append(bool(decided[row, pair.label]))
    positives, negatives = sum(truth), len(truth) - sum(truth)
    hits = sum(g for g, t in zip(given, truth, strict=True) if t)
    alarms = sum(g for g, t in zip(given, truth, strict=True) if not t)
    recall = hits / positives if positives else np.nan
    rate = alarms / negatives if negatives else np.nan
    if not positives or not negatives:
        return np.nan, recall, rate
    # The weight of a negative with which positives are a share `prevalence` of the whole weight.
    weight = positives / negatives * (1 - prevalence) / prevalence
    weights = [1.0 if each else weight for each in truth]
    return average_precision_score(truth, scores, sample_weight=weights), recall, rate


def prevalence_of(predictions, pair):
    known = predictions.evaluated[:, [pair.label, pair.other]].all(axis=1)
    return (predictions.positive[:, pair.label] & known).sum() / known.sum()


@pytest.mark.parametrize("decimals", [None, 1])
def test_values_are_those_of_a_loop(decimals):
    predictions = with_gaps(make_predictions(300, 4, prevalence=0.4, decimals=decimals))
    decided = predictions.scores > 0.6
    pairs = [LabelPair(0, 1, 0.5, 0.4), LabelPair(3, 2, 0.5, 0.4)]
    for found in measure_leaning(predictions, decided, pairs, np.random.default_rng(0), 0.95, 10):
        prevalence = prevalence_of(predictions, found.pair)
        expected = [
            of_rows(predictions, decided, range(300), found.pair, present, prevalence)
            for present in (True, False)
        ]
        for index, contrast in enumerate(found[1:]):
            assert (contrast.first, contrast.second) == pytest.approx(
                (expected[0][index], expected[1][index])
            )
            assert contrast.difference.estimate == pytest.approx(contrast.first - contrast.second)
        positive, negative = (
            predictions.positive[:, found.pair.label],
            predictions.negative[:, found.pair.label],
        )
        has, lacks = predictions.positive[:, found.pair.other], predictions.negative[:, found.pair.other]
        assert found.recall[2:4] == ((positive & has).sum(), (positive & lacks).sum())
        assert found.false_positives[2:4] == ((negative & has).sum(), (negative & lacks).sum())


@pytest.mark.parametrize("grouped", [False, True])
def test_intervals_come_from_whole_resamples(grouped):
    predictions = make_predictions(160, 3, prevalence=0.4, signal=0.6)
    if grouped:
        predictions = replace(predictions, groups=tuple(f"patient{row // 4}" for row in range(160)))
    decided = predictions.scores > 0.5
    (found,) = measure_leaning(predictions, decided, [PAIR], np.random.default_rng(7), 0.9, 60)
    generator = np.random.default_rng(7)
    values = []
    for _ in range(60):
        if grouped:
            drawn = generator.integers(40, size=40)
            rows = [row for group in drawn for row in range(4 * group, 4 * group + 4)]
        else:
            rows = generator.integers(160, size=160)
        values.append(
            [
                of_rows(predictions, decided, rows, PAIR, present, prevalence_of(predictions, PAIR))
                for present in (True, False)
            ]
        )
    values = np.array(values)  # resample, stratum, figure
    differences = values[:, 0] - values[:, 1]
    for index, contrast in enumerate(found[1:]):
        interval = contrast.difference
        bias = differences[:, index].mean() - interval.estimate
        middle = (interval.low + interval.high) / 2
        assert middle == pytest.approx(interval.estimate - bias, abs=1e-9)
        # The quantile of 1.64 grows by the few degrees of freedom and the inflation, not more.
        reach = (interval.high - interval.low) / 2 / differences[:, index].std(ddof=1)
        assert 1.64 < reach < 1.85


def planted(leans: bool, num_images: int = 900, seed: int = 0):
    """Label 0 usually with label 1; its score follows itself, or label 1 where it leans."""
    generator = np.random.default_rng(seed)
    other = generator.random(num_images) < 0.4
    label = np.where(other, generator.random(num_images) < 0.5, generator.random(num_images) < 0.2)
    cause = other if leans else label
    noise = generator.normal(size=(num_images, 2))
    logits = 2.5 * (2 * np.stack([cause, other], axis=1) - 1) + noise
    return from_arrays(1 / (1 + np.exp(-logits)), np.stack([label, other], axis=1))


def test_a_planted_dependence_is_found():
    (found,) = measure_leaning(
        planted(True), planted(True).scores > 0.5, [PAIR], np.random.default_rng(0), joint_level(3)
    )
    assert found.recall.difference.low > 0.8
    assert found.false_positives.difference.low > 0.8
    # Within images that all have the other label (or all lack it) nothing ranks the label.
    assert not found.average_precision.difference.excludes_zero


def test_one_that_is_not_there_is_not():
    """Over 40 draws at 95 % jointly, at most a few intervals may exclude 0 by chance."""
    wrong = 0
    for seed in range(40):
        predictions = planted(False, 400, seed)
        (found,) = measure_leaning(
            predictions, predictions.scores > 0.5, [PAIR], np.random.default_rng(seed), joint_level(3), 200
        )
        wrong += any(contrast.difference.excludes_zero for contrast in found[1:])
    assert wrong <= 6


def test_a_higher_prevalence_alone_is_no_higher_average_precision():
    generator = np.random.default_rng(3)
    other = np.arange(40_000) % 2 == 0
    label = generator.random(40_000) < np.where(other, 0.5, 0.05)
    logits = generator.normal(size=40_000) + 1.5 * label
    predictions = from_arrays(
        np.stack([1 / (1 + np.exp(-logits)), other], axis=1), np.stack([label, other], 1)
    )
    (found,) = measure_leaning(predictions, predictions.scores > 0.5, [PAIR], generator, 0.95, 20)
    assert found.average_precision.first == pytest.approx(found.average_precision.second, abs=0.02)


def test_images_that_are_not_there_leave_values_undefined():
    scores = np.random.default_rng(0).random((30, 2))
    always = np.stack([np.arange(30) % 3 == 0, np.ones(30)], axis=1)
    (found,) = measure_leaning(
        from_arrays(scores, always), scores > 0.5, [PAIR], np.random.default_rng(0), 0.95
    )
    for contrast in found[1:]:
        assert not np.isnan(contrast.first)
        assert np.isnan(contrast.second)
        assert contrast.num_second == 0
        assert contrast.difference is None
    one = np.stack([np.arange(30) == 0, np.arange(30) % 2 == 0], axis=1)
    (found,) = measure_leaning(from_arrays(scores, one), scores > 0.5, [PAIR], np.random.default_rng(0), 0.95)
    assert found.recall.difference is None
    assert found.average_precision.difference is None
    assert found.false_positives.difference is not None
    unknown = np.full((30, 2), -1)
    (found,) = measure_leaning(
        from_arrays(scores, unknown), scores > 0.5, [PAIR], np.random.default_rng(0), 0.95
    )
    assert [contrast[2:] for contrast in found[1:]] == [(0, 0, None)] * 3
    assert measure_leaning(from_arrays(scores, one), scores > 0.5, [], np.random.default_rng(0), 0.95) == []


def test_an_average_precision_is_as_uncertain_as_its_smaller_side():
    """Few images without the label: too few to judge false positives, and so the average precision."""
    label = np.arange(60) >= 12
    other = np.arange(60) % 2 == 0
    scores = np.random.default_rng(0).random((60, 2))
    predictions = from_arrays(scores, np.stack([label, other], axis=1))
    (found,) = measure_leaning(predictions, scores > 0.5, [PAIR], np.random.default_rng(0), 0.95)
    assert found.recall.difference is not None
    assert found.false_positives.difference is None
    assert found.average_precision.difference is None


def test_arguments_are_checked():
    predictions = make_predictions(20, 3)
    with pytest.raises(InputError, match=r"decided must have the shape \(20, 3\), got \(20, 2\)"):
        measure_leaning(predictions, np.ones((20, 2), bool), [PAIR], np.random.default_rng(0), 0.95)
    with pytest.raises(InputError, match="num_resamples must be at least 2, got 1"):
        measure_leaning(predictions, np.ones((20, 3), bool), [PAIR], np.random.default_rng(0), 0.95, 1)


def test_the_usual_label_is_the_one_that_is_more_frequent_than_overall():
    # Label 2 is in most images of label 0, but also in most others; label 1 only with label 0.
    targets = np.zeros((100, 4), dtype=np.int8)
    targets[:20, 0] = targets[:14, 1] = 1
    targets[:18, 2] = targets[20:90, 2] = 1
    pairs = usual_pairs(find_cooccurring_labels(targets), targets.mean(axis=0))
    assert pairs[0] == LabelPair(0, 1, 0.7, pytest.approx(0.14))
    assert [pair.label for pair in pairs] == [0, 1, 2][: len(pairs)]
    assert 3 not in [pair.label for pair in pairs]


def test_the_usual_label_is_not_the_rarest():
    often, rarely = (1, 0.9), (2, 0.3)
    (found,) = usual_pairs([[often, rarely], [], []], np.array([0.5, 0.5, 0.1]))
    assert found == LabelPair(0, 1, 0.9, 0.5)


def test_a_resample_without_positives_or_without_negatives_has_no_average_precision():
    positive = np.array([True, False, True, False])
    images = np.ones(4, dtype=np.bool_)
    ranking = rank_label(np.array([0.9, 0.8, 0.7, 0.1], dtype=np.float32), images, positive)
    stratum = _Stratum(ranking, positive, ~positive, images, 0.5)
    weights = np.stack([images, positive, ~positive], axis=1).astype(np.int32)
    found = _average_precisions(stratum, weights)
    assert np.isnan(found).tolist() == [False, True, True]
    # Half of the positives before any alarm, the other half at a recall of 1 and half of the alarms.
    assert found[0] == pytest.approx(0.5 + 0.5 * 1 / (1 + 0.5))
