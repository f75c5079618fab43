from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluation.synthetic import assert_equal_fields, from_arrays, make_predictions, with_gaps
from kmcl.errors import InputError
from kmcl.evaluation.decisions import decide, decision_metrics
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.temperature import fit_temperatures
from kmcl.evaluation.thresholds import MAX_DISTANCE, LabelThresholds, choose_thresholds, half_expected_f1


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
        "f1": choose_thresholds(predictions, max_distance=np.inf),
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
    assert choose_thresholds(predictions, max_distance=np.inf).values.tolist() == [0.1875]
    assert choose_thresholds(predictions, "precision", 0.9).values.tolist() == [0.625]
    assert choose_thresholds(predictions, "recall", 0.5).values.tolist() == [0.625]
    assert choose_thresholds(predictions, "recall", 1.0).values.tolist() == [0.1875]


def test_only_a_precision_can_be_out_of_reach() -> None:
    predictions = from_arrays([[0.75], [0.5], [0.25]], [[0], [1], [0]])
    for arguments in (("f1",), ("recall", 1.0), ("precision", 0.5)):
        for distance in (np.inf, 0.875):
            assert choose_thresholds(predictions, *arguments, max_distance=distance).unreached == ()


def test_defaults_are_f1_and_one_half() -> None:
    chosen = choose_thresholds(make_predictions())
    assert (chosen.criterion, chosen.wanted, chosen.default) == ("f1", None, 0.5)
    assert chosen.values.tolist() == choose_thresholds(make_predictions(), max_distance=0.875).values.tolist()


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
    # Two thresholds give a precision of one half; the lower one has the higher recall.
    twice = from_arrays([[0.75], [0.5], [0.375], [0.25]], [[0], [1], [0], [1]])
    assert choose_thresholds(twice, "precision", 0.9).values.tolist() == [0.125]


def test_a_label_without_positives_gets_the_default_and_is_named() -> None:
    predictions = from_arrays(
        [[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]],
        [[1, 0, 1], [0, 0, 0]],
        ignored=[[False, False, True], [False, False, False]],
    )
    chosen = choose_thresholds(predictions, default=0.75, max_distance=np.inf)
    assert chosen.support == (1, 0, 0)
    assert chosen.unsupported == ("label0", "label1", "label2")
    assert chosen.values[1:].tolist() == [0.75, 0.75]
    assert chosen.common is None
    first_empty = from_arrays([[0.9, 0.9, 0.9], [0.1, 0.1, 0.1]], [[0, -1, 1], [0, -1, 0]])
    chosen = choose_thresholds(first_empty, default=0.7, max_distance=np.inf)
    assert chosen.values.tolist() == [np.float32(0.7), np.float32(0.7), 0.5]
    for end in (0.0, 1.0):
        assert choose_thresholds(first_empty, default=end, max_distance=np.inf).values[0] == end
    without_any = choose_thresholds(from_arrays([[0.9], [0.1]], [[0], [0]]), default=0.75)
    assert (without_any.values.tolist(), without_any.common) == ([0.75], None)


def expected_halves(calibrated: Predictions) -> list[float]:
    """By plain loops over every number of images to accept."""
    halves = []
    for label in range(calibrated.num_labels):
        chances = sorted(calibrated.scores[calibrated.evaluated[:, label], label].tolist(), reverse=True)
        best = max(2 * sum(chances[:k]) / (k + sum(chances)) for k in range(1, len(chances) + 1))
        halves.append(best / 2)
    return halves


@given(seed=st.integers(0, 1000))
@settings(max_examples=8, deadline=None)
def test_half_of_the_expected_f1_by_loops(seed: int) -> None:
    predictions = with_gaps(make_predictions(40, 3, seed=seed))
    assert half_expected_f1(predictions) == pytest.approx(expected_halves(predictions), rel=1e-12)


def test_half_of_the_expected_f1_is_the_best_threshold_of_right_probabilities() -> None:
    generator = np.random.default_rng(0)
    scores = generator.beta(0.5, 2, size=(40_000, 1))
    predictions = from_arrays(scores, (generator.random(scores.shape) < scores).astype(np.int8))
    (own,) = choose_thresholds(predictions, max_distance=np.inf).values
    assert half_expected_f1(predictions)[0] == pytest.approx(own, abs=0.03)


def test_a_label_without_positives_gets_the_expected_threshold() -> None:
    predictions = make_predictions(300, 6, prevalence=0.3)
    predictions = replace(predictions, targets=predictions.targets * np.int8([0, 1, 1, 1, 1, 1]))
    chosen = choose_thresholds(predictions, max_distance=10)
    calibration = fit_temperatures(predictions, with_bias=True)
    expected = half_expected_f1(calibration.calibrate(predictions))
    calibrated = calibration.apply(np.float32([chosen.values]))[0]
    assert calibrated[0] == pytest.approx(expected[0], rel=1e-5)
    assert chosen.unsupported == ("label0",)


def test_thresholds_stay_near_the_common_one() -> None:
    predictions = make_predictions(60, 12, prevalence=0.1, signal=0.8)
    calibration = fit_temperatures(predictions, with_bias=True)
    own = choose_thresholds(predictions, max_distance=np.inf)
    chosen = choose_thresholds(predictions, max_distance=0.7, calibration=calibration)
    assert chosen.support == tuple(predictions.positive.sum(axis=0).tolist())
    halves = np.array(expected_halves(calibration.calibrate(predictions)))
    centre = np.median(np.log(halves / (1 - halves)))
    assert chosen.common == pytest.approx(1 / (1 + np.exp(-centre)), rel=1e-5)
    moved = 0
    for label in range(12):
        line = (calibration.temperatures[label], calibration.biases[label])
        before, after = (
            np.log(values[label] / (1 - values[label])) / line[0] + line[1]
            for values in (own.values, chosen.values)
        )
        assert after == pytest.approx(min(max(before, centre - 0.7), centre + 0.7), abs=1e-5)
        assert np.float32(chosen.values[label]) == chosen.values[label]
        moved += abs(before - after) > 1e-3
        if abs(before - centre) < 0.69:
            assert chosen.values[label] == own.values[label]
    assert 0 < moved < 12


def test_no_two_thresholds_are_as_far_apart_as_17_and_54_percent() -> None:
    predictions = make_predictions(50, 18, prevalence=0.08, signal=0.7)
    calibration = fit_temperatures(predictions, with_bias=True)
    spreads = []
    for options in ({}, {"max_distance": np.inf}):
        values = choose_thresholds(predictions, calibration=calibration, **options).values
        shown = calibration.apply(np.float32([values]))[0].astype(np.float64)
        spreads.append(np.ptp(np.log(shown / (1 - shown))))
    assert spreads[0] < 1.7501 < spreads[1]


def test_wanted_precision_and_recall_are_not_bounded() -> None:
    predictions = make_predictions(60, 3)
    for criterion in ("precision", "recall"):
        near, own = (choose_thresholds(predictions, criterion, 0.8, max_distance=d) for d in (0.0, np.inf))
        assert near.values.tolist() == own.values.tolist()
        assert near.common is None


def test_near_thresholds_of_a_small_val_are_better_on_test() -> None:
    test = make_predictions(3000, 8, seed=99, prevalence=0.1, signal=0.8)
    gains = []
    for seed in range(15):
        val = make_predictions(60, 8, seed=seed, prevalence=0.1, signal=0.8)
        near, own = (
            decision_metrics(test, decide(test.scores, choose_thresholds(val, max_distance=d).values))
            for d in (MAX_DISTANCE, np.inf)
        )
        gains.append((near.OF1 - own.OF1, np.mean(near.f1) - np.mean(own.f1)))
    assert (np.mean(gains, axis=0) > 0.01).all()


def test_neighbouring_scores_are_told_apart_in_float32_too() -> None:
    high = np.float32(0.7)
    low = np.nextafter(high, np.float32(0))
    lower = np.nextafter(low, np.float32(0))
    for above, below in ((high, low), (low, lower)):
        predictions = from_arrays([[above], [below]], [[1], [0]])
        values = choose_thresholds(predictions, max_distance=np.inf).values
        assert decide(predictions.scores, values).tolist() == [[True], [False]]
        assert decide(predictions.scores, values.astype(np.float32)).tolist() == [[True], [False]]


def test_saturated_scores_still_get_a_threshold() -> None:
    predictions = from_arrays([[1.0], [0.0]], [[1], [1]])
    chosen = choose_thresholds(predictions, max_distance=np.inf)
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
    assert_equal_fields(again, chosen)
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
        ({"max_distance": -1}, "max_distance must be at least 0, got -1"),
        ({"max_distance": np.nan}, "max_distance must be at least 0, got nan"),
    ],
)
def test_impossible_wishes_are_refused(arguments, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_thresholds(make_predictions(), **arguments)
