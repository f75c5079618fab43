"""Label rules: the calibration formula, decisions, and files from anybody."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, sigmoid

RULES = LabelRules(
    ("cat", "dog", "hat"),
    thresholds=(0.2, 0.5, 0.8),
    temperatures=(0.5, 1.0, 2.0),
    biases=(-1.0, 0.0, 3.0),
    probability_intervals=((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, -0.7, 0.8),) * 3,
    cooccurrence=(((1, 0.5), (2, 0.25)), (), ((0, 1),)),
    threshold_support=(4, 5, 0),
)


def test_calibration_is_sigmoid_of_logit_over_temperature_plus_bias():
    logits = np.array([[1.0, -2.0, 0.5], [-0.5, 3.0, -40.0]], dtype=np.float32)
    found = RULES.calibrate(logits)
    for row in range(2):
        for label in range(3):
            expected = expit(float(logits[row, label]) / RULES.temperatures[label] + RULES.biases[label])
            assert found[row, label] == pytest.approx(expected, rel=1e-14)
    assert found.dtype == np.float64


def test_without_anything_fitted_probabilities_are_scores_and_thresholds_one_half():
    plain = LabelRules(("cat", "dog"))
    logits = np.array([[-3.0, 2.0]])
    np.testing.assert_allclose(plain.calibrate(logits), expit(logits), rtol=1e-14)
    assert plain.present(np.array([[0.5, 0.4999]])).tolist() == [[True, False]]
    assert not plain.is_calibrated
    assert RULES.is_calibrated


def test_thresholds_of_scores_become_thresholds_of_probabilities():
    expected = [expit(np.log(0.25) / 0.5 - 1), 0.5, expit(np.log(4) / 2 + 3)]
    np.testing.assert_allclose(RULES.probability_thresholds, expected, atol=5e-7)
    np.testing.assert_allclose([RULES.score_of(t)[k] for k, t in enumerate(expected)], RULES.thresholds)


def test_decisions_are_those_of_the_scores_on_the_scale_of_the_probabilities():
    scores = np.array([[0.2001, 0.49, 0.9], [0.19, 0.5, 0.79]])
    probabilities = RULES.calibrate(np.log(scores / (1 - scores)))
    decided = RULES.decide(scores, probabilities)
    assert decided.present.tolist() == [[True, False, True], [False, True, False]]
    np.testing.assert_allclose(decided.probabilities, probabilities, atol=5e-7)
    np.testing.assert_allclose(RULES.decide(scores).probabilities, probabilities, atol=1e-6)


@given(
    score=st.floats(0, 1),
    threshold=st.floats(0, 1),
    temperature=st.floats(0.05, 20),
    bias=st.floats(-8, 8),
)
def test_what_is_shown_agrees_with_the_decision_after_rounding(score, threshold, temperature, bias):
    rules = LabelRules(("a",), thresholds=(threshold,), temperatures=(temperature,), biases=(bias,))
    decided = rules.decide(np.array([[score]], dtype=np.float32))
    probability, limit = decided.probabilities[0, 0], decided.thresholds[0]
    assert float(f"{probability:.6f}") == probability
    assert float(f"{limit:.6f}") == limit
    assert decided.present[0, 0] == (float(f"{probability:.6g}") >= float(f"{limit:.6g}"))
    if threshold == 0:
        assert decided.present[0, 0]


def test_a_tiny_threshold_does_not_become_zero():
    rules = LabelRules(("a",), thresholds=(1e-9,))
    assert rules.probability_thresholds.tolist() == [1e-6]
    decided = rules.decide(np.array([[1e-10], [1e-8]]))
    assert decided.present.tolist() == [[False], [True]]
    assert decided.probabilities.tolist() == [[0.0], [1e-6]]
    assert rules.exact_thresholds == pytest.approx([1e-9])


def test_thresholds_chosen_on_too_few_images_are_named():
    assert RULES.unsupported_thresholds == ("cat", "hat")
    assert replace(RULES, threshold_support=None).unsupported_thresholds == ()


def test_the_sigmoid_neither_overflows_nor_loses_small_values():
    values = np.array([-800.0, -700.0, -40.0, 0.0, 40.0, 800.0])
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(sigmoid(values), expit(values), rtol=1e-14)


def test_rules_survive_json():
    assert LabelRules.from_json(json.loads(json.dumps(RULES.to_json()))) == RULES
    assert LabelRules.from_json({"labels": ["a"]}) == LabelRules(("a",))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": []}, "labels must be 1 to 100000 names; got 0"),
        ({"labels": "abc"}, "labels must be 1 to 100000 names; got 'abc'"),
        ({"labels": ["a", "b", "a"]}, "labels must be different names; got 'a' twice"),
        ({"labels": ["a", "b", 3]}, "labels must be different names; got 3"),
        ({"labels": ["a", "b", ""]}, "labels must be different names; got ''"),
        ({"labels": ["a", "b", ["c"]]}, r"labels must be different names; got \('c',\)"),
        ({"thresholds": [0.5]}, "thresholds must be 3 numbers; got 1"),
        ({"thresholds": 0.5}, "thresholds must be 3 numbers; got 0.5"),
        ({"thresholds": [0.5, float("nan"), 0.5]}, "thresholds must be finite; got nan"),
        ({"thresholds": [0.5, True, 0.5]}, "thresholds must be finite; got True"),
        ({"temperatures": [1, 0, 1]}, "temperatures must be finite and above 0; got 0"),
        ({"temperatures": {"cat": 1}}, "temperatures must be 3 numbers; got {'cat': 1}"),
        ({"biases": [0, "1", 0]}, "biases must be finite; got '1'"),
        ({"probability_intervals": [[1] * 8] * 2}, "one row for each of 3 labels; got 2"),
        ({"probability_intervals": [[1] * 7] * 3}, "row of probability_intervals must be 8 numbers; got 7"),
        ({"probability_intervals": [[1] * 7 + [0]] * 3}, "must end with a deviation above 0; got 0"),
        ({"probability_intervals": [["1"] * 8] * 3}, "probability_intervals must be finite; got '1'"),
        ({"probability_intervals": 3}, "probability_intervals must be a list with one list for each label"),
        ({"cooccurrence": [[[3, 0.5]], [], []]}, r"pairs \(index of a label, share\); got \(3, 0.5\)"),
        ({"cooccurrence": [[[True, 0.5]], [], []]}, r"pairs \(index of a label, share\); got \(True, 0.5\)"),
        ({"cooccurrence": [[[1, 1.5]], [], []]}, "between 0 and 1; got 1.5"),
        ({"cooccurrence": [[1], [], []]}, r"pairs \(index of a label, share\); got 1"),
        ({"cooccurrence": [3, [], []]}, "cooccurrence must be a list with one list for each label"),
        ({"threshold_support": [1]}, "threshold_support must be 3 numbers; got 1"),
        ({"surprise": 1}, "label rules have no field 'surprise'"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_impossible_rules_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        LabelRules.from_json({**json.loads(json.dumps(RULES.to_json())), **changes})


def test_what_is_no_object_and_what_has_no_labels():
    for values in ([], None, "labels"):
        with pytest.raises(InputError, match="label rules must be an object"):
            LabelRules.from_json(values)
    with pytest.raises(InputError, match="label rules must have labels"):
        LabelRules.from_json({"thresholds": None})


def test_a_replaced_field_is_checked_too():
    with pytest.raises(InputError, match="temperatures must be finite and above 0; got -1"):
        replace(RULES, temperatures=(1.0, -1.0, 1.0))


def test_rules_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from kmcl.evaluation.label_rules import LabelRules\n"
        "print(sorted({'pandas', 'sklearn', 'timm'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
