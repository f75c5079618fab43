from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest

from kmcl.errors import InputError
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.label_rules import LabelRules

LABELS = ("cat", "dog")
GIVEN = Guarantee("recall", 0.9, num_images=300, needed=9, not_given=("dog",))


@pytest.mark.parametrize(
    ("text", "expected", "spelled"),
    [
        ("recall=0.9", GuaranteeWish("recall", 0.9), "recall=0.9"),
        (" found = 0.8 ", GuaranteeWish("found", 0.8), "found=0.8"),
        ("confidence=0.95,recall=0.9", GuaranteeWish("recall", 0.9, 0.95), "recall=0.9,confidence=0.95"),
        ("precision=0.8", GuaranteeWish("precision", 0.8, 0.9), "precision=0.8,confidence=0.9"),
    ],
)
def test_wishes_are_parsed_and_spelled(text, expected, spelled):
    assert GuaranteeWish.parse(text) == expected
    assert str(expected) == spelled
    assert GuaranteeWish.parse(spelled) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("recal=0.9", r"must be of recall, precision, found; got 'recal' \(did you mean 'recall'\?\)"),
        ("recall", "a guarantee is given as recall=0.9, .*; got 'recall'"),
        ("recall=high", "a guarantee is given as .*; got 'recall=high'"),
        ("recall=nan", "a guarantee is given as .*; got 'recall=nan'"),
        ("", "a guarantee is given as .*; got ''"),
        ("recall=0.9,recall=0.8", "a guarantee is given as .*; got 'recall=0.9,recall=0.8'"),
        ("recall=0.9,found=0.8", "a guarantee is of one rate"),
        ("confidence=0.9", "a guarantee is of one rate"),
        ("recall=0", "the recall of a guarantee must be above 0 and below 1; got 0.0"),
        ("found=1", "the found of a guarantee must be above 0 and below 1; got 1.0"),
        ("recall=90", "above 0 and below 1; got 90.0"),
        ("recall=inf", "above 0 and below 1; got inf"),
        ("recall=0.9,confidence=1", "the confidence of a guarantee must be above 0 and below 1; got 1.0"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_impossible_wishes_are_refused(text, message):
    with pytest.raises(InputError, match=message):
        GuaranteeWish.parse(text)


def test_words():
    words = GIVEN.in_words(LABELS)
    assert "of the images that have a label, at least 90 % are found, for each label, in expectation" in words
    assert "chosen on 300 images of val, and holds" in words
    assert "not given for dog: it takes at least 9 images of val that have the label." in words
    precise = Guarantee("precision", 0.85, num_images=90, num_groups=30, needed=4)
    words = precise.in_words(LABELS)
    assert "where a label is predicted, at least 85 % have it" in words
    assert "with 90 % confidence over the choice of val" in words
    assert "90 images of val in 30 groups, each counting once" in words
    assert "not given" not in words
    none = replace(precise, not_given=LABELS).in_words(LABELS)
    assert none.startswith("No guarantee precision=0.85,confidence=0.9: it takes at least 4 groups of val")
    found = Guarantee("found", 0.9, needed=9, not_given=LABELS)
    assert "9 images of val that have a label" in found.in_words(LABELS)


def test_rules_keep_their_guarantee_through_json():
    rules = LabelRules(LABELS, guarantee=GIVEN)
    assert LabelRules.from_json(json.loads(json.dumps(rules.to_json()))) == rules
    assert rules.guarantee is not None
    assert rules.guarantee.wish == GuaranteeWish("recall", 0.9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "luck"}, "must be of recall, precision, found; got 'luck'"),
        ({"level": 1.5}, "above 0 and below 1; got 1.5"),
        ({"level": "0.9"}, "above 0 and below 1; got 0.9"),
        ({"num_images": -1}, "the numbers of a guarantee must be counts"),
        ({"needed": 1.5}, "the numbers of a guarantee must be counts"),
        ({"num_groups": True}, "the numbers of a guarantee must be counts"),
        ({"not_given": ["cow"]}, r"labels of a guarantee must be the model's; got \('cow',\)"),
        ({"not_given": 3}, "a guarantee must have a kind and a level"),
        ({"surprise": 1}, "must be an object with the fields of one"),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
def test_impossible_guarantees_are_refused(changes, message):
    values = json.loads(json.dumps(asdict(GIVEN))) | changes
    with pytest.raises(InputError, match=message):
        LabelRules.from_json({"labels": list(LABELS), "guarantee": values})


@pytest.mark.parametrize("values", [3, [], {"level": 0.9}])
@pytest.mark.usefixtures("no_shape_checks")
def test_what_is_no_guarantee_is_refused(values):
    with pytest.raises(InputError, match="a guarantee must"):
        LabelRules.from_json({"labels": list(LABELS), "guarantee": values})


def test_a_promised_recall_misses_nothing_by_rounding():
    promised = LabelRules(LABELS, thresholds=(1e-9, 0.5), guarantee=GIVEN)
    decided = promised.decide(np.array([[2e-9, 0.4], [5e-10, 0.5]]))
    assert decided.present.tolist() == [[True, False], [False, True]]
    np.testing.assert_array_equal(decided.thresholds, [1e-6, 0.5])
    np.testing.assert_array_equal(decided.probabilities[:, 0], [1e-6, 0])
