"""A guarantee for people: what is promised, and what was achieved beside it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from kmcl.evaluation.promised_rates import PromisedRates
from kmcl.models.label_rules import LabelRules

_RATES = {
    "recall": "mean recall of the labels",
    "precision": "mean precision of the labels",
    "found": "share of an image's labels found",
}


def print_guarantee(
    console: Console, path: Path, rules: LabelRules, achieved: PromisedRates, of: str
) -> None:
    """Print both sentences, named by the run's folder."""
    if rules.guarantee is None:
        return
    words = f"{path}: {rules.guarantee.in_words(rules.labels)}"
    if achieved.rate == achieved.rate:
        words += f" {achieved_in_words(rules.guarantee.kind, achieved, of)}"
    console.print(words, soft_wrap=True, highlight=False, markup=False)


def achieved_in_words(kind: str, achieved: PromisedRates, of: str) -> str:
    """As in "On test: mean recall of the labels 91.2 % (promised 90 %), lowest 84.0 % (sofa)."."""
    words = f"On {of}: {_RATES[kind]} {100 * achieved.rate:.1f} % (promised {100 * achieved.promised:g} %)"
    if achieved.lowest is not None:
        lowest = float(min(rate for rate in achieved.labels if rate == rate))
        words += f", lowest {100 * lowest:.1f} % ({achieved.lowest})"
    return f"{words}."
