"""The metrics of a model's decisions: scores are evaluated, thresholds are given as probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.guarantees import choose_guaranteed_thresholds, refuse_small_val
from kmcl.evaluation.metrics import Evaluation, evaluate
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.promised_rates import PromisedRates, promised_rates
from kmcl.models.guarantee import GuaranteeWish
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


def rates_by_rules(predictions: Predictions, rules: LabelRules) -> PromisedRates | None:
    """What the model's guarantee promises, as achieved on these predictions; None without a guarantee."""
    if rules.guarantee is None:
        return None
    columns = [rules.labels.index(label) for label in predictions.labels]
    return promised_rates(predictions, rules.score_thresholds[columns], rules.guarantee)


def with_guarantee(rules: LabelRules, val: Predictions, wish: GuaranteeWish) -> LabelRules:
    """The rules with thresholds that keep the wish, chosen on val; InputError where no label can have them.

    A label that val does not support them for keeps its threshold, and the guarantee names it.
    """
    refuse_small_val(val, wish)
    chosen = choose_guaranteed_thresholds(val, wish, rules.score_thresholds)
    if set(chosen.guarantee.not_given) == set(rules.labels):
        reason = chosen.guarantee.what_it_takes()
        raise InputError(f"{wish} cannot be guaranteed for any label: {reason}; val has {len(val)} images")
    return replace(rules, thresholds=tuple(map(float, chosen.values)), guarantee=chosen.guarantee)
