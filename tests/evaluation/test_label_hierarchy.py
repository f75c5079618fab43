"""Labels that imply others in what a model predicts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kmcl.errors import InputError
from kmcl.evaluation.by_rules import evaluate_by_rules
from kmcl.evaluation.label_hierarchy import (
    levels_of,
    lower_parents,
    parent_rows,
    raise_parents,
)
from kmcl.evaluation.label_rules import LabelRules, logit
from kmcl.evaluation.levels import metrics_by_level
from kmcl.evaluation.predictions import Predictions

LABELS = ("animal", "dog", "puppy", "pet", "car")
PARENTS = {"dog": ("animal", "pet"), "puppy": ("dog",)}
ROWS = parent_rows(LABELS, PARENTS)
PAIRS = [("dog", "animal"), ("dog", "pet"), ("puppy", "dog"), ("puppy", "animal"), ("puppy", "pet")]
"""Child and ancestor."""


def rules_with(**changes: object) -> LabelRules:
    values = {
        "labels": LABELS,
        "thresholds": (0.6, 0.3, 0.5, 0.2, 0.4),
        "temperatures": (2.0, 0.7, 1.0, 1.3, 1.0),
        "biases": (0.5, -1.0, 0.0, 0.3, 0.1),
        "parents": ROWS,
    }
    return LabelRules(**(values | changes))  # type: ignore[arg-type]


def scores_of(num_images: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((num_images, len(LABELS))).astype(np.float32)


def test_parents_by_index_and_levels():
    assert ROWS == ((), (0, 3), (1,), (), ())
    assert levels_of(ROWS) == (0, 1, 2, 0, 0)


def test_a_parent_is_raised_to_the_largest_of_its_descendants():
    raised = raise_parents(np.array([[0.1, 0.2, 0.7, 0.9, 0.3]]), ROWS)
    assert raised.tolist() == [[0.7, 0.7, 0.7, 0.9, 0.3]]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_in_every_hierarchy_present_labels_have_their_ancestors(data):
    """Parents of a label come before it, so that there is no circle."""
    num = data.draw(st.integers(1, 7))
    rows = tuple(
        tuple(sorted(data.draw(st.sets(st.integers(0, label - 1), max_size=3)))) if label else ()
        for label in range(num)
    )
    probability = st.floats(0, 1)
    probabilities = np.array(data.draw(st.lists(probability, min_size=num, max_size=num)))
    thresholds = np.array(data.draw(st.lists(probability, min_size=num, max_size=num)))
    raised, lowered = raise_parents(probabilities[None], rows)[0], lower_parents(thresholds, rows)
    assert (raised >= probabilities).all()
    assert (lowered <= thresholds).all()
    for child, parents in enumerate(rows):
        for parent in parents:
            assert raised[parent] >= raised[child]
            assert not (raised[child] >= lowered[child]) or raised[parent] >= lowered[parent]


def test_rules_without_parents_are_as_before():
    plain = rules_with(parents=None)
    assert "parents" not in plain.to_json()
    logits = logit(scores_of(20))
    np.testing.assert_allclose(
        plain.calibrate(logits), 1 / (1 + np.exp(-(logits / plain.temperature_values + plain.bias_values)))
    )


def test_rules_respect_parents_and_survive_json():
    rules = LabelRules.from_json(json.loads(json.dumps(rules_with().to_json())))
    assert rules == rules_with()
    decided = rules.decide(scores_of(500))
    place = {label: index for index, label in enumerate(LABELS)}
    for child, ancestor in PAIRS:
        low, high = place[child], place[ancestor]
        assert (decided.probabilities[:, high] >= decided.probabilities[:, low]).all()
        assert (decided.present[:, high] >= decided.present[:, low]).all()
    np.testing.assert_array_equal(decided.present, decided.probabilities >= decided.thresholds)
    alone = rules_with(parents=None)
    np.testing.assert_array_equal(
        rules.calibrate(logit(scores_of(9)))[:, 4], alone.calibrate(logit(scores_of(9)))[:, 4]
    )


@pytest.mark.parametrize("parents", [((), ()), ((1,), (0,), (), (), ()), ((9,), (), (), (), ())])
def test_damaged_parents_are_refused(parents):
    with pytest.raises(InputError, match="parents"):
        rules_with(parents=parents)


def test_evaluate_judges_what_predict_shows_and_levels_are_means():
    rules = rules_with()
    targets = (np.random.default_rng(1).random((300, 5)) < 0.4).astype(np.int8)
    predictions = Predictions(LABELS, tuple(map(str, range(300))), scores_of(300), targets)
    found = evaluate_by_rules(predictions, rules)
    decided = rules.decide(predictions.scores)
    for index, row in enumerate(found.labels):
        present, true = decided.present[:, index], targets[:, index] == 1
        assert row.recall == pytest.approx((present & true).sum() / true.sum())
        assert row.precision == pytest.approx((present & true).sum() / max(present.sum(), 1))
        assert row.threshold == pytest.approx(decided.thresholds[index], abs=1e-6)
    levels = metrics_by_level(found, rules)
    assert [level.labels for level in levels] == [("animal", "pet", "car"), ("dog",), ("puppy",)]
    assert [level.level for level in levels] == [1, 2, 3]
    top = [row.average_precision for row in found.labels if row.label in levels[0].labels]
    assert levels[0].mean_average_precision == pytest.approx(np.mean(top))
    np.testing.assert_allclose(levels[1].CF1, found.labels[1].f1)
    assert metrics_by_level(found, rules_with(parents=None)) == ()


def test_other_data_may_lack_labels_of_the_hierarchy():
    rules = rules_with()
    some = Predictions(
        ("dog", "car"),
        ("a", "b", "c"),
        np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.6]], np.float32),
        np.array([[1, 0], [0, 1], [1, 0]], np.int8),
    )
    assert [row.label for row in evaluate_by_rules(some, rules).labels] == ["dog", "car"]
    assert evaluate_by_rules(some, rules, 0.5).threshold == 0.5
