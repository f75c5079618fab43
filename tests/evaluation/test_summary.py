"""The metrics of a finished run: what is chosen on val, and that every figure is that of its own function."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from evaluation.synthetic import make_predictions, with_gaps
from kmcl.evaluation.bootstrap import bootstrap_map, compare_mean_map, map_interval, paired_difference
from kmcl.evaluation.by_rules import evaluate_by_rules
from kmcl.evaluation.decisions import decide, decision_metrics
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.json_values import from_json_object
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.metrics import evaluate
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.summary import ChosenOnVal, SplitSummary, choose_on_val, measure_splits, metrics_of
from kmcl.evaluation.temperature import calibration, fit_temperatures
from kmcl.evaluation.thresholds import choose_thresholds
from kmcl.evaluation.uncertainty import compare_uncertainties

VAL, TEST = make_predictions(120, 3, seed=1), make_predictions(90, 3, seed=2)
COUNTS = np.array([30, 10, 20])


def summarise(
    val: Predictions | None,
    test: Predictions | None,
    rules: LabelRules | None = None,
    label_counts: npt.NDArray[np.int64] | None = None,
    **how: Any,
) -> tuple[ChosenOnVal, LabelRules, dict[str, SplitSummary]]:
    """What is chosen on val, the rules with it, and what is measured of both splits."""
    splits = {name: split for name, split in (("val", val), ("test", test)) if split is not None}
    chosen = choose_on_val(val, **how)
    rules = chosen.complete(rules or LabelRules(next(iter(splits.values())).labels))
    return chosen, rules, measure_splits(splits, rules, how.get("threshold", 0.5), label_counts, chosen)


def test_both_splits_are_judged_by_what_was_chosen_on_val() -> None:
    chosen, rules, found = summarise(VAL, TEST, threshold=0.4, label_counts=COUNTS)
    with_bias = fit_temperatures(VAL, with_bias=True)
    thresholds = choose_thresholds(VAL, default=0.4)
    expected_temperatures = fit_temperatures(VAL)
    assert chosen.thresholds is not None
    assert chosen.thresholds.to_json() == thresholds.to_json()
    assert chosen.thresholds.default == 0.4
    assert chosen.temperatures is not None
    assert chosen.temperatures.to_json() == expected_temperatures.to_json()
    assert chosen.temperatures_and_biases is not None
    assert chosen.temperatures_and_biases.to_json() == with_bias.to_json()
    for split, name, fitted_on in ((VAL, "val", None), (TEST, "test", VAL)):
        of_split = found[name]
        assert of_split.map_interval == bootstrap_map(split, np.random.default_rng(0), 1000)
        assert of_split.evaluation.to_json() == evaluate(split, 0.4, label_counts=COUNTS).to_json()
        own = evaluate(split, thresholds.values, label_counts=COUNTS)
        assert of_split.evaluation_own_thresholds is not None
        assert of_split.evaluation_own_thresholds.to_json() == own.to_json()
        assert of_split.by_rules.to_json() == evaluate_by_rules(split, rules).to_json()
        for measured, calibrated in (
            (of_split.calibration_raw, split),
            (of_split.calibration_temperature, expected_temperatures.calibrate(split)),
            (of_split.calibration_temperature_and_bias, with_bias.calibrate(split)),
        ):
            assert measured is not None
            assert measured.to_json() == calibration(calibrated).to_json()
        uncertainty = compare_uncertainties(split, thresholds.values, fitted_on=fitted_on)
        assert of_split.uncertainty.to_json() == uncertainty.to_json()
    written = metrics_of(chosen, found)
    json.dumps(written, allow_nan=False)
    assert list(written["test"])[:3] == ["map_interval", "evaluation", "evaluation_own_thresholds"]
    assert not {"by_rules", "levels"} & set(written["test"])


def test_a_wanted_precision_reaches_the_thresholds() -> None:
    chosen, _, found = summarise(VAL, None, criterion="precision", target=0.9)
    assert chosen.thresholds is not None
    assert chosen.thresholds.to_json() == choose_thresholds(VAL, "precision", 0.9).to_json()
    assert metrics_of(chosen, found)["test"] is None
    plain, _, found = summarise(VAL, None)
    assert plain.thresholds is not None
    assert (plain.thresholds.criterion, plain.thresholds.default) == ("f1", 0.5)
    assert found["val"].evaluation.threshold == 0.5


@pytest.mark.parametrize("val", [None, make_predictions(0, 3)])
def test_without_val_nothing_is_chosen(val: Predictions | None) -> None:
    chosen, _, found = summarise(val, TEST)
    assert chosen == ChosenOnVal()
    assert list(found) == ["test"]
    assert found["test"].evaluation_own_thresholds is None
    assert found["test"].calibration_temperature is None
    assert found["test"].calibration_temperature_and_bias is None
    expected = compare_uncertainties(TEST, 0.5)
    assert found["test"].uncertainty.to_json() == expected.to_json()


def test_an_empty_test_split_has_no_metrics() -> None:
    chosen, _, found = summarise(VAL, make_predictions(0, 3))
    assert metrics_of(chosen, found)["test"] is None


@pytest.mark.parametrize("kind", ["plain", "gaps", "parents", "guarantee", "no val"])
def test_a_summary_is_read_as_it_was_written(kind: str) -> None:
    val, test = (with_gaps(VAL), with_gaps(TEST)) if kind == "gaps" else (VAL, TEST)
    rules = LabelRules(VAL.labels, parents=((), (0,), (0,)) if kind == "parents" else None)
    wish = GuaranteeWish("recall", 0.8) if kind == "guarantee" else None
    _, _, found = summarise(None if kind == "no val" else val, test, rules, wish=wish)
    for summary in found.values():
        written = json.dumps(summary.to_json(), allow_nan=False)
        read = from_json_object(SplitSummary, json.loads(written))
        assert json.dumps(read.to_json()) == written
        assert read.by_rules.at_threshold.precision.dtype == np.float64
        assert read.calibration_raw.pooled_curve.counts.dtype == np.int64


def test_intervals_have_one_seed_and_a_thousand_resamples() -> None:
    assert map_interval(TEST) == bootstrap_map(TEST, np.random.default_rng(0), 1000)
    assert map_interval(TEST, 40, 5) == bootstrap_map(TEST, np.random.default_rng(5), 40)
    other = replace(TEST, scores=TEST.scores[::-1].copy())
    assert paired_difference([TEST], [other]) == compare_mean_map(
        [TEST], [other], np.random.default_rng(0), 1000
    )
    assert paired_difference([TEST], [other], 40, 5) == compare_mean_map(
        [TEST], [other], np.random.default_rng(5), 40
    )
    assert map_interval(TEST, 40).level == 0.95


RULES = LabelRules(
    ("label2", "label0", "label1"),
    thresholds=(0.3, 0.6, 0.7),
    temperatures=(2.0, 1.0, 0.5),
    biases=(0.0, 1.0, -0.5),
)
OF_RULES = {label: index for index, label in enumerate(RULES.labels)}


def test_rules_decide_label_by_label_and_are_shown_as_probabilities() -> None:
    found = evaluate_by_rules(TEST, RULES, top_k=2)
    own = np.array([0.6, 0.7, 0.3])  # in the order of the predictions' labels
    assert found.at_threshold.CF1 == decision_metrics(TEST, decide(TEST.scores, own)).CF1
    assert (found.threshold, found.k) == (None, 2)
    for row, score in zip(found.labels, own, strict=True):
        place = OF_RULES[row.label]
        logit = np.log(score / (1 - score)) / RULES.temperatures[place] + RULES.biases[place]
        assert row.threshold == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-6)
    assert evaluate_by_rules(TEST, RULES).k == 3


def test_one_probability_for_all_labels_is_a_score_of_each() -> None:
    found = evaluate_by_rules(TEST, RULES, threshold=0.4)
    assert found.threshold == 0.4
    assert [row.threshold for row in found.labels] == [0.4] * 3
    wanted = np.log(0.4 / 0.6)
    scores = [
        1 / (1 + np.exp(-(wanted - RULES.biases[place]) * RULES.temperatures[place]))
        for place in (OF_RULES[label] for label in TEST.labels)
    ]
    assert found.at_threshold.OF1 == decision_metrics(TEST, decide(TEST.scores, np.array(scores))).OF1
