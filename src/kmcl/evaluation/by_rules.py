"""The metrics of a model's decisions: scores are evaluated, thresholds are given as probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.guarantees import choose_guaranteed_thresholds, refuse_small_val
from kmcl.evaluation.metrics import Evaluation, evaluate
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.promised_rates import PromisedRates, promised_rates
from kmcl.evaluation.ranking import Values
from kmcl.models.guarantee import GuaranteeWish
from kmcl.models.label_rules import LabelRules, logit


def evaluate_by_rules(
    predictions: Predictions, rules: LabelRules, threshold: float | None = None, top_k: int = 3
) -> Evaluation:
    """The metrics of predictions of some or all labels of a model.

    threshold: the calibrated probability from which every label counts as predicted; None: each label's own

    The thresholds of the result are calibrated probabilities, as `kmcl predict` shows them. Where labels
    imply others, so are the scores that are evaluated.
    """
    columns = [rules.labels.index(label) for label in predictions.labels]
    if rules.parents is not None:
        predictions, own = _as_shown(predictions, rules)
        given = own if threshold is None else np.full(len(columns), float(np.float32(threshold)))
        found = evaluate(predictions, given, top_k)
        return replace(found, threshold=threshold)
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
    if rules.parents is not None:
        return promised_rates(*_as_shown(predictions, rules), rules.guarantee)
    columns = [rules.labels.index(label) for label in predictions.labels]
    return promised_rates(predictions, rules.score_thresholds[columns], rules.guarantee)


def _as_shown(predictions: Predictions, rules: LabelRules) -> tuple[Predictions, Values]:
    """Probabilities as they are shown in place of the scores, and their thresholds, both of float32.

    Where labels imply others, scores alone do not decide what is predicted.
    """
    columns = [rules.labels.index(label) for label in predictions.labels]
    scores = np.zeros((len(predictions), len(rules.labels)), dtype=np.float32)
    scores[:, columns] = predictions.scores
    decided = rules.decide(rules.calibrate(logit(scores)))
    thresholds = decided.thresholds.astype(np.float32).astype(np.float64)[columns]
    shown = np.ascontiguousarray(decided.probabilities.astype(np.float32)[:, columns])
    return replace(predictions, scores=shown), thresholds


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
