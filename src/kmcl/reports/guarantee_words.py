"""What is promised or left to a person, in words, and what was achieved beside it."""

from __future__ import annotations

from kmcl.evaluation.abstention import Abstention
from kmcl.evaluation.guarantee import Guarantee
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.promised_rates import PromisedRates

_RATES = {
    "recall": "mean recall of the labels",
    "precision": "mean precision of the labels",
    "found": "share of an image's labels found",
}


def guarantee_in_words(rules: LabelRules, guarantee: Guarantee, achieved: PromisedRates, of: str) -> str:
    """What is promised, and what was achieved where that can be measured."""
    words = guarantee.in_words(rules.labels)
    if achieved.rate == achieved.rate:
        words += f" {achieved_in_words(guarantee.kind, achieved, of)}"
    return words


def achieved_in_words(kind: str, achieved: PromisedRates, of: str) -> str:
    """As in "On test: mean recall of the labels 91.2 % (promised 90 %), lowest 84.0 % (sofa)."."""
    words = f"On {of}: {_RATES[kind]} {100 * achieved.rate:.1f} % (promised {100 * achieved.promised:g} %)"
    if achieved.lowest is not None:
        lowest = float(min(rate for rate in achieved.labels if rate == rate))
        words += f", lowest {100 * lowest:.1f} % ({achieved.lowest})"
    return f"{words}."


def abstention_in_words(found: Abstention, of: str) -> str:
    """How many decisions are left to a person, and the errors among the others."""
    return (
        f"{100 * found.share:.1f} % of the decisions on {of} are left to a person (wanted "
        f"{100 * found.wanted:g} %): those that are wrong with a probability above {found.cutoff:.3f}. "
        f"Of the others {100 * found.remaining:.2f} % are wrong, of all {100 * found.error:.2f} %."
    )
