"""Whether a label is present is decided once: evaluation, prediction, abstention, drift and rates agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from evaluation.synthetic import from_arrays, make_predictions
from kmcl.evaluation.abstention import error_probabilities
from kmcl.evaluation.by_rules import evaluate_by_rules, rates_by_rules
from kmcl.evaluation.drift import predicted_images
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.label_hierarchy import ParentRows
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.metrics import evaluate
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.summary import choose_on_val, measure
from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.label_context import LabelContext, ShownScores

HIERARCHY: ParentRows = ((), (0,), (1,), (1, 4), ())


def as_predicted(rules: LabelRules, logits: npt.NDArray[np.float32]) -> ShownScores:
    """As `kmcl predict` shows what a model gives: scores of float32, probabilities of the logits."""
    scores = expit(logits)
    assert scores.dtype == np.float32
    return LabelContext.of(rules).shown(BatchScores(scores, rules.calibrate(logits), None))


def all_decided(rules: LabelRules, logits: npt.NDArray[np.float32]) -> ShownScores:
    """What is predicted; asserts that everything else decides the same, and that the numbers say it too."""
    shown = as_predicted(rules, logits)
    present = shown.present
    predictions = Predictions(
        rules.labels, tuple(map(str, range(len(logits)))), expit(logits), present.astype(np.int8)
    )
    np.testing.assert_array_equal(shown.probability >= shown.thresholds, present)
    np.testing.assert_array_equal(error_probabilities(rules, predictions)[1], present)
    np.testing.assert_array_equal(predicted_images(predictions, rules).present, present)
    judged = evaluate_by_rules(predictions, rules)
    # Judged against themselves, decisions are perfect.
    for row in judged.labels:
        assert row.num_positives == 0 or (row.precision, row.recall) == (1, 1), row
    assert judged.at_threshold.never_predicted == ()
    assert np.isnan(judged.at_threshold.OP) or judged.at_threshold.OP == 1
    return shown


def test_a_rare_label_is_decided_alike_by_evaluate_and_predict() -> None:
    """Its probabilities are so low that many images have the one of the threshold, when rounded."""
    rules = LabelRules(("rare",), thresholds=(0.3,), temperatures=(1.0,), biases=(-6.0,))
    logits = np.random.default_rng(0).normal(-1, 1.5, (20_000, 1)).astype(np.float32)
    shown = all_decided(rules, logits)
    np.testing.assert_array_equal(shown.present, expit(logits) >= 0.3)


@st.composite
def values_and_logits(draw: st.DrawFn) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """Values of rules, and logits of images, some of them at and beside the thresholds."""
    size = len(HIERARCHY)
    column = st.lists(st.floats(-14, 14, width=32), min_size=size, max_size=size)
    thresholds = expit(np.array(draw(column), dtype=np.float32))
    logits = np.array(draw(st.lists(column, min_size=1, max_size=6)), dtype=np.float32)
    with np.errstate(divide="ignore"):
        at = np.clip(np.log(thresholds / (1 - thresholds)), -80, 80).astype(np.float32)
    beside = [at, np.nextafter(at, np.float32(99)), np.nextafter(at, np.float32(-99)), at + 3e-6, at - 3e-6]
    numbers = st.lists(st.floats(-8, 8), min_size=size, max_size=size)
    temperatures = st.lists(st.floats(0.05, 20), min_size=size, max_size=size)
    values = {
        "labels": tuple(f"label{index}" for index in range(size)),
        "thresholds": tuple(map(float, thresholds)),
        "temperatures": tuple(draw(temperatures)),
        "biases": tuple(draw(numbers)),
        "parents": draw(st.sampled_from([None, HIERARCHY])),
        "is_promised": draw(st.booleans()),
    }
    return values, np.concatenate([logits, np.stack(beside).astype(np.float32)])


@settings(max_examples=200)
@given(values_and_logits())
def test_whatever_the_rules_one_decision_is_taken_and_shown(drawn: tuple[dict[str, Any], Any]) -> None:
    values, logits = drawn
    guarantee = Guarantee("recall", 0.9) if values.pop("is_promised") else None
    rules = LabelRules(**values, guarantee=guarantee)
    shown = all_decided(rules, logits)
    if rules.parents is None:
        np.testing.assert_array_equal(shown.present, expit(logits) >= np.array(rules.thresholds))
        return
    for child, row in enumerate(rules.parents):
        for parent in row:
            assert (shown.present[:, parent] >= shown.present[:, child]).all()
            assert (shown.probability[:, parent] >= shown.probability[:, child]).all()


def test_rates_of_a_guarantee_are_those_of_the_decisions_shown() -> None:
    generator = np.random.default_rng(1)
    logits = generator.normal(-1, 1.5, (20_000, 2)).astype(np.float32)
    targets = (generator.random(logits.shape) < expit(logits)).astype(np.int8)
    predictions = from_arrays(expit(logits), targets)
    rules = LabelRules(
        predictions.labels,
        thresholds=(0.3, 0.2),
        temperatures=(1.0, 2.0),
        biases=(-6.0, -7.0),
        guarantee=Guarantee("recall", 0.9),
    )
    present = as_predicted(rules, logits).present
    expected = [present[targets[:, label] == 1, label].mean() for label in range(2)]
    assert rates_by_rules(predictions, rules).labels.tolist() == expected


def test_rare_labels_are_ranked_by_exact_probabilities_where_labels_imply_others() -> None:
    predictions = make_predictions(2000, 2, prevalence=0.05)
    rules = LabelRules(predictions.labels, temperatures=(1.0, 1.0), biases=(-9.0, 0.0), parents=((1,), ()))
    found = evaluate_by_rules(predictions, rules)
    assert found.labels[0].average_precision == evaluate(predictions).labels[0].average_precision


def test_metrics_of_a_finished_run_are_of_the_decisions_that_its_model_takes() -> None:
    """Where labels imply others, the thresholds alone do not decide."""
    val, test = make_predictions(400, 5, seed=1), make_predictions(300, 5, seed=2)
    chosen = choose_on_val(val, wish=GuaranteeWish("recall", 0.8))
    rules = chosen.complete(LabelRules(val.labels, parents=HIERARCHY))
    found = measure(test, rules, val=val)
    present = rules.present(test.scores)
    own, expected = found.evaluation_own_thresholds, evaluate_by_rules(test, rules)
    assert own.at_threshold.OF1 == expected.at_threshold.OF1
    assert [row.recall for row in own.labels] == [row.recall for row in expected.labels]
    assert found.uncertainty.num_wrong == (present != (test.targets == 1)).sum()
    assert found.promised_rates.labels.tolist() == rates_by_rules(test, rules).labels.tolist()
    assert not np.array_equal(present, test.scores >= chosen.thresholds.values)
