from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.synthetic import from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.decisions import decide, decision_metrics
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.temperature import fit_temperatures
from kmcl.evaluation.thresholds import LabelThresholds, choose_thresholds, common_threshold


def candidates(predictions: Predictions, label: int) -> list[tuple[float, float, float]]:
    """Precision, recall and F1 of one label at every score that occurs and is evaluated, by plain loops."""
    there = predictions.evaluated[:, label]
    found = []
    for threshold in predictions.scores[there, label]:
        metrics = decision_metrics(predictions, decide(predictions.scores, float(threshold)))
        found.append((metrics.precision[label], metrics.recall[label], metrics.f1[label]))
    return found


@given(seed=st.integers(0, 1000), decimals=st.sampled_from([1, 3]))
@settings(max_examples=8, deadline=None)
def test_no_other_threshold_is_better(seed: int, decimals: int) -> None:
    predictions = with_gaps(make_predictions(60, 3, seed=seed, decimals=decimals))
    chosen = {
        "f1": choose_thresholds(predictions, prior_count=0),
        "precision": choose_thresholds(predictions, "precision", 0.8),
        "recall": choose_thresholds(predictions, "recall", 0.7),
    }
    got = {
        criterion: decision_metrics(predictions, decide(predictions.scores, thresholds.values))
        for criterion, thresholds in chosen.items()
    }
    for label, name in enumerate(predictions.labels):
        possible = candidates(predictions, label)
        assert got["f1"].f1[label] == pytest.approx(max(f1 for _, _, f1 in possible))
        assert got["recall"].recall[label] >= 0.7
        best_precision = max(precision for precision, recall, _ in possible if recall >= 0.7)
        assert got["recall"].precision[label] <= best_precision
        with_precision = [recall for precision, recall, _ in possible if precision >= 0.8]
        if with_precision:
            assert got["precision"].precision[label] >= 0.8
            assert got["precision"].recall[label] == pytest.approx(max(with_precision))
        else:
            assert name in chosen["precision"].unreached
            assert got["precision"].precision[label] == max(precision for precision, _, _ in possible)


def test_thresholds_by_hand() -> None:
    predictions = from_arrays([[0.875], [0.75], [0.5], [0.25], [0.125]], [[1], [1], [0], [1], [0]])
    # F1 is 0.8 for the first two and 6/7 for the first four: threshold half-way between 0.25 and 0.125.
    assert choose_thresholds(predictions, prior_count=0).values.tolist() == [0.1875]
    assert choose_thresholds(predictions, "precision", 0.9).values.tolist() == [0.625]
    assert choose_thresholds(predictions, "recall", 0.5).values.tolist() == [0.625]
    assert choose_thresholds(predictions, "recall", 1.0).values.tolist() == [0.1875]


def test_only_a_precision_can_be_out_of_reach() -> None:
    predictions = from_arrays([[0.75], [0.5], [0.25]], [[0], [1], [0]])
    for arguments in (("f1",), ("recall", 1.0), ("precision", 0.5)):
        for prior_count in (0, 5):
            assert choose_thresholds(predictions, *arguments, prior_count=prior_count).unreached == ()


def test_defaults_are_f1_and_one_half() -> None:
    chosen = choose_thresholds(make_predictions())
    assert (chosen.criterion, chosen.wanted, chosen.default) == ("f1", None, 0.5)
    assert chosen.values.tolist() == choose_thresholds(make_predictions(), prior_count=5).values.tolist()


def test_a_label_without_negatives_has_no_support() -> None:
    predictions = make_predictions(60, 2, prevalence=0.5)
    targets = predictions.targets.copy()
    targets[:, 0] = 1
    targets[np.flatnonzero(targets[:, 1] == 0)[4:], 1] = 1
    chosen = choose_thresholds(replace(predictions, targets=targets))
    assert chosen.support == (0, 4)
    assert chosen.unsupported == ("label0", "label1")


def test_five_images_of_either_kind_support_a_threshold() -> None:
    scores, targets = [[0.1 * place] for place in range(1, 10)], [[0]] * 4 + [[1]] * 5
    assert choose_thresholds(from_arrays(scores, targets)).unsupported == ("label0",)
    targets = [[0]] * 5 + [[1]] * 5
    assert choose_thresholds(from_arrays([[0.05], *scores], targets)).unsupported == ()


def test_a_precision_nothing_reaches_gives_the_highest_and_is_named() -> None:
    predictions = from_arrays([[0.75], [0.5], [0.25]], [[0], [1], [0]])
    chosen = choose_thresholds(predictions, "precision", 0.9)
    assert chosen.unreached == ("label0",)
    assert chosen.values.tolist() == [0.375]


def test_a_label_without_positives_gets_the_default_and_is_named() -> None:
    predictions = from_arrays(
        [[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]],
        [[1, 0, 1], [0, 0, 0]],
        ignored=[[False, False, True], [False, False, False]],
    )
    chosen = choose_thresholds(predictions, default=0.75, prior_count=0)
    assert chosen.support == (1, 0, 0)
    assert chosen.unsupported == ("label0", "label1", "label2")
    assert chosen.values[1:].tolist() == [0.75, 0.75]
    assert chosen.common is None
    first_empty = from_arrays([[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]], [[0, -1, 1], [0, -1, 0]])
    chosen = choose_thresholds(first_empty, default=0.7, prior_count=0)
    assert chosen.values.tolist() == [np.float32(0.7), np.float32(0.7), 0.5]
    for end in (0.0, 1.0):
        assert choose_thresholds(first_empty, default=end, prior_count=0).values[0] == end
    without_any = choose_thresholds(from_arrays([[0.9], [0.1]], [[0], [0]]), default=0.75)
    assert (without_any.values.tolist(), without_any.common) == ([0.75], None)


def test_a_label_without_positives_gets_the_common_threshold() -> None:
    predictions = make_predictions(300, 6, prevalence=0.3)
    predictions = replace(predictions, targets=predictions.targets * np.int8([0, 1, 1, 1, 1, 1]))
    chosen = choose_thresholds(predictions)
    calibration = fit_temperatures(predictions, with_bias=True)
    calibrated = calibration.apply(np.float32([chosen.values]))[0]
    assert chosen.common == common_threshold(calibration.calibrate(predictions))
    assert calibrated[0] == pytest.approx(chosen.common, rel=1e-5)
    assert chosen.unsupported == ("label0",)


def test_thresholds_shrink_by_their_support() -> None:
    predictions = make_predictions(400, 4)
    few = predictions.targets.copy()
    few[np.flatnonzero(few[:, 3])[3:], 3] = 0
    predictions = replace(predictions, targets=few)
    calibration = fit_temperatures(predictions, with_bias=True)
    own = choose_thresholds(predictions, prior_count=0)
    chosen = choose_thresholds(predictions, prior_count=7, calibration=calibration)
    assert chosen.support == tuple(predictions.positive.sum(axis=0).tolist())
    assert chosen.unsupported == ("label3",)
    for label, count in enumerate(chosen.support):
        line = (calibration.temperatures[label], calibration.biases[label])
        own_logit = np.log(own.values[label] / (1 - own.values[label])) / line[0] + line[1]
        common = np.log(chosen.common / (1 - chosen.common))
        expected = (count * own_logit + 7 * common) / (count + 7)
        found = np.log(chosen.values[label] / (1 - chosen.values[label])) / line[0] + line[1]
        assert found == pytest.approx(expected, abs=1e-5)
        assert np.float32(chosen.values[label]) == chosen.values[label]


def test_wanted_precision_and_recall_are_not_shrunk() -> None:
    predictions = make_predictions(60, 3)
    for criterion in ("precision", "recall"):
        shrunk, own = (choose_thresholds(predictions, criterion, 0.8, prior_count=k) for k in (100.0, 0.0))
        assert shrunk.values.tolist() == own.values.tolist()
        assert shrunk.common is None


def test_shrunk_thresholds_of_a_small_val_are_better_on_test() -> None:
    test = make_predictions(3000, 8, seed=99, prevalence=0.1, signal=0.8)
    gains = []
    for seed in range(15):
        val = make_predictions(60, 8, seed=seed, prevalence=0.1, signal=0.8)
        shrunk, own = (
            decision_metrics(test, decide(test.scores, choose_thresholds(val, prior_count=k).values))
            for k in (5.0, 0.0)
        )
        gains.append((shrunk.OF1 - own.OF1, np.mean(shrunk.f1) - np.mean(own.f1)))
    assert (np.mean(gains, axis=0) > 0.01).all()


def test_neighbouring_scores_are_told_apart_in_float32_too() -> None:
    high = np.float32(0.7)
    low = np.nextafter(high, np.float32(0))
    lower = np.nextafter(low, np.float32(0))
    for above, below in ((high, low), (low, lower)):
        predictions = from_arrays([[above], [below]], [[1], [0]])
        values = choose_thresholds(predictions, prior_count=0).values
        assert decide(predictions.scores, values).tolist() == [[True], [False]]
        assert decide(predictions.scores, values.astype(np.float32)).tolist() == [[True], [False]]


def test_saturated_scores_still_get_a_threshold() -> None:
    predictions = from_arrays([[1.0], [0.0]], [[1], [1]])
    chosen = choose_thresholds(predictions, prior_count=0)
    assert chosen.values.tolist() == [0.0]
    assert decide(predictions.scores, chosen.values).all()


def test_a_saturated_score_does_not_carry_the_threshold_away() -> None:
    # The best F1 accepts the positive that scores 0, whose logit is -87.
    rows = [(0.0, 1), (0.0, 0), (0.7, 1), (0.6, 1)]
    predictions = from_arrays([[score] for score, _ in rows], [[target] for _, target in rows])
    (value,) = choose_thresholds(predictions).values
    assert 0 < value < 0.6


def test_thresholds_survive_json() -> None:
    predictions = make_predictions()
    chosen = choose_thresholds(
        replace(predictions, targets=predictions.targets * np.int8([0, 1, 1, 1, 1, 1]))
    )
    again = LabelThresholds.from_json(json.loads(json.dumps(chosen.to_json(), allow_nan=False)))
    np.testing.assert_array_equal(again.values, chosen.values)
    assert replace(again, values=chosen.values) == chosen
    assert chosen.unsupported == ("label0",)


@pytest.mark.parametrize(
    "change",
    [{"values": [0.5]}, {"values": [2.0] * 6}, {"values": ["x"] * 6}, {"extra": 1}, {"labels": None}],
)
def test_foreign_json_is_refused(change) -> None:
    with pytest.raises(InputError, match="thresholds"):
        LabelThresholds.from_json(choose_thresholds(make_predictions()).to_json() | change)


def test_thresholds_in_json_are_complete_and_in_range() -> None:
    written = choose_thresholds(make_predictions()).to_json()
    ends = [0.0, 1.0, 0.0, 1.0, 0.5, 0.5]
    assert LabelThresholds.from_json(written | {"values": ends}).values.tolist() == ends
    for wrong in (-0.001, 1.001, np.nan):
        with pytest.raises(InputError, match=r"thresholds must be 6 values in \[0, 1\], got"):
            LabelThresholds.from_json(written | {"values": [0.5] * 5 + [wrong]})
    for name in ("labels", "values", "support", "unsupported", "unreached"):
        with pytest.raises(InputError, match=f"not a set of label thresholds: .*{name}"):
            LabelThresholds.from_json({key: value for key, value in written.items() if key != name})
    found = LabelThresholds.from_json(written)
    assert all(isinstance(getattr(found, name), tuple) for name in ("support", "unsupported", "unreached"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"criterion": "accuracy"}, "one of f1, precision, recall, got 'accuracy'"),
        ({"criterion": "precision"}, "'precision' needs a wanted value"),
        ({"criterion": "f1", "wanted": 0.5}, r"'f1' takes no wanted value, got 0\.5"),
        ({"criterion": "recall", "wanted": 1.5}, r"wanted recall must be in \(0, 1\], got 1\.5"),
        ({"default": -1}, "default threshold.*got -1"),
        ({"default": 1.01}, r"default threshold must be in \[0, 1\], got 1\.01"),
        ({"criterion": "recall", "wanted": 0.0}, r"wanted recall must be in \(0, 1\], got 0"),
        ({"prior_count": -1}, "prior_count must be at least 0, got -1"),
        ({"prior_count": float("nan")}, "prior_count must be at least 0, got nan"),
    ],
)
def test_impossible_wishes_are_refused(arguments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_thresholds(make_predictions(), **arguments)
