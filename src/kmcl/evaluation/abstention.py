"""Leaving the least certain decisions to a person: which ones, and how many errors remain among the others.

A decision about a label is wrong with the probability

    u = 1 - p  where the label is predicted,   u = p  where it is not

p is the calibrated probability. Decisions with u above a cut-off are left to a person. The cut-off is the
lowest with

    (sum over the n images of val of the share of decisions above it + 1) / (n + 1) <= wanted share

so that of the decisions about a new image at most the wanted share is left in expectation, if it is
exchangeable with those of val. This needs no targets. Images count, not groups of them: the share is the work
that is left to people, and a patient with many images causes more of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.guarantees import Positives, controlled_threshold
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Mask, Predictions
from kmcl.evaluation.ranking import Values


@dataclass(frozen=True)
class Abstention:
    """What leaving decisions to a person does on one split; NaN where there is no decision.

    wanted, share: of all decisions that are left to a person: as wanted, and as it came out
    error:         share of the evaluated decisions that are wrong
    remaining:     share of the evaluated decisions that are not left to a person that are wrong
    found:         share of the wrong decisions that are left to a person
    """

    wanted: float
    cutoff: float
    share: float
    error: float
    remaining: float
    found: float

    def to_json(self) -> JsonObject:
        return to_json_object(self)


def error_probabilities(rules: LabelRules, predictions: Predictions) -> tuple[Values, Mask]:
    """N x L probabilities that the decision is wrong, and the decisions; labels are those of the rules."""
    decided = rules.decide(predictions.scores)
    return np.where(decided.present, 1 - decided.probabilities, decided.probabilities), decided.present


def choose_cutoff(rules: LabelRules, val: Predictions, share: float) -> float:
    """The probability of an error above which a decision is left to a person."""
    if not 0 < share < 1:
        raise InputError(f"the share to abstain from must be above 0 and below 1; got {share}")
    uncertainties, _ = error_probabilities(rules, val)
    weights = np.full(uncertainties.size, 1 / val.num_labels)
    every_pair = Positives(-uncertainties.ravel(), weights, len(val), False)
    found = controlled_threshold(every_pair, GuaranteeWish("found", 1 - share))
    if found is None:
        raise InputError(
            f"abstaining from {share:g} of the decisions takes at least {int(np.ceil(1 / share - 1 - 1e-9))} "
            f"images of val; there are {len(val)}"
        )
    return -found


def judge_abstention(rules: LabelRules, predictions: Predictions, share: float, cutoff: float) -> Abstention:
    """Leave decisions about these images to a person, and count the errors among the others."""
    uncertainties, present = error_probabilities(rules, predictions)
    left, evaluated = uncertainties > cutoff, predictions.evaluated
    wrong = (present != predictions.positive) & evaluated
    return Abstention(
        wanted=share,
        cutoff=cutoff,
        share=_share(left, np.ones_like(left)),
        error=_share(wrong, evaluated),
        remaining=_share(wrong & ~left, evaluated & ~left),
        found=_share(wrong & left, wrong),
    )


def _share(counted: Mask, of: Mask) -> float:
    return float(counted.sum() / of.sum()) if of.any() else float("nan")
