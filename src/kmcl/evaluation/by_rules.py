"""The metrics of a model's decisions, which `LabelRules` takes; thresholds are given as probabilities."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.guarantees import choose_guaranteed_thresholds, refuse_small_val
from kmcl.evaluation.label_rules import Decisions, LabelRules, logit
from kmcl.evaluation.metrics import TOP_K, Evaluation, Ranking, rank
from kmcl.evaluation.predictions import Predictions, Scores
from kmcl.evaluation.promised_rates import PromisedRates, promised_rates


def evaluate_by_rules(
    predictions: Predictions,
    rules: LabelRules,
    threshold: float | None = None,
    top_k: int = TOP_K,
    ranking: Ranking | None = None,
) -> Evaluation:
    """The metrics of predictions of some or all labels of a model.

    threshold: the calibrated probability from which every label counts as predicted; None: each label's own
    ranking:   of these predictions, where it is known

    The thresholds of the result are calibrated probabilities, as `kmcl predict` shows them. Where labels
    imply others, so are the scores that are evaluated, not rounded.
    """
    decided = decisions_of(predictions, rules if threshold is None else rules.at(threshold))
    shown = decided.thresholds if threshold is None else np.full(predictions.num_labels, threshold)
    if rules.parents is not None:
        scores, columns = _scores_of_all_labels(predictions, rules)
        raised = rules.calibrate(logit(scores))[:, columns]
        ranking = rank(replace(predictions, scores=np.ascontiguousarray(raised, dtype=np.float32)))
    ranking = ranking or rank(predictions)
    return replace(ranking.evaluate(decided.present, shown, top_k), threshold=threshold)


def rates_by_rules(predictions: Predictions, rules: LabelRules) -> PromisedRates | None:
    """What the model's guarantee promises, as achieved on these predictions; None without a guarantee."""
    if rules.guarantee is None:
        return None
    return promised_rates(predictions, decisions_of(predictions, rules).present, rules.guarantee)


def decisions_of(predictions: Predictions, rules: LabelRules) -> Decisions:
    """What the model decides about predictions of some or all of its labels, as `kmcl predict` shows it."""
    scores, columns = _scores_of_all_labels(predictions, rules)
    return rules.decide(scores).of_labels(columns)


def _scores_of_all_labels(predictions: Predictions, rules: LabelRules) -> tuple[Scores, list[int]]:
    """Scores of all labels of the model, 0 for those without predictions, and the columns of the others."""
    columns = [rules.labels.index(label) for label in predictions.labels]
    scores = np.zeros((len(predictions), len(rules.labels)), dtype=np.float32)
    scores[:, columns] = predictions.scores
    return scores, columns


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
