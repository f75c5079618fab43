"""Metrics of each level of labels that imply others."""

from __future__ import annotations

import numpy as np
import pytest

from evaluation.synthetic import make_predictions
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.levels import metrics_by_level
from kmcl.evaluation.metrics import evaluate


def test_the_metrics_of_a_level_are_the_means_of_its_labels():
    evaluation = evaluate(make_predictions(200, 4, seed=2), 0.4)
    labels = tuple(row.label for row in evaluation.labels)
    rules = LabelRules(labels, parents=((), (0,), (), (2,)))
    found = metrics_by_level(evaluation, rules)
    assert [(level.level, level.labels) for level in found] == [(1, labels[::2]), (2, labels[1::2])]
    for level in found:
        rows = [row for row in evaluation.labels if row.label in level.labels]
        precision = np.mean([row.precision for row in rows])
        recall = np.mean([row.recall for row in rows])
        expected = {
            "mean_average_precision": np.mean([row.average_precision for row in rows]),
            "mean_auc": np.mean([row.auc for row in rows]),
            "CP": precision,
            "CR": recall,
            "CF1": 2 * precision * recall / (precision + recall),
        }
        assert {name: getattr(level, name) for name in expected} == pytest.approx(expected)
        assert len({round(value, 6) for value in expected.values()}) == len(expected)  # none is another


def test_labels_without_parents_have_no_levels():
    evaluation = evaluate(make_predictions(50, 2), 0.5)
    assert metrics_by_level(evaluation, LabelRules(("label0", "label1"))) == ()
