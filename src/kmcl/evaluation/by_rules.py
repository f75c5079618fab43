"""The metrics of a model's decisions: scores are evaluated, thresholds are given as probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kmcl.evaluation.metrics import Evaluation, evaluate
from kmcl.evaluation.predictions import Predictions
from kmcl.models.label_rules import LabelRules


def evaluate_by_rules(
    predictions: Predictions, rules: LabelRules, threshold: float | None = None, top_k: int = 3
) -> Evaluation:
    """The metrics of predictions of some or all labels of a model.

    threshold: the calibrated probability from which every label counts as predicted; None: each label's own

    The thresholds of the result are calibrated probabilities, as `kmcl predict` shows them.
    """
    columns = [rules.labels.index(label) for label in predictions.labels]
    if threshold is None:
        scores, shown = rules.score_thresholds, rules.probability_thresholds
    else:
        scores, shown = rules.score_of(threshold), np.full(len(rules.labels), threshold)
    found = evaluate(predictions, scores[columns], top_k).with_thresholds(shown[columns])
    return replace(found, threshold=threshold)
