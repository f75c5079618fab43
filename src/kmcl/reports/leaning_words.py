"""Findings about labels that lean on others, in words: only those whose interval excludes no effect."""

from __future__ import annotations

from collections.abc import Sequence

from kmcl.evaluation.contrasts import Contrast, Difference
from kmcl.evaluation.leaning import LabelLeaning
from kmcl.reports.blocks import percent
from kmcl.reports.masked import MaskedLabel


def finding(leaning: LabelLeaning, labels: Sequence[str]) -> list[str]:
    """What images with and without the co-occurring label show; empty where nothing is found."""
    other = labels[leaning.pair.other]
    words = []
    if _is_found(leaning.average_precision):
        found = leaning.average_precision
        how = "worse" if found.first > found.second else "better"
        words.append(f"ranked {how} without {other} ({_values('AP', found.second, found.first)} with it)")
    if _is_found(leaning.recall):
        found = leaning.recall
        if found.first > found.second:
            words.append(
                f"missed more often without {other} ({_values('recall', found.second, found.first)})"
            )
        else:
            words.append(f"missed more often with {other} ({_values('recall', found.first, found.second)})")
    if _is_found(leaning.false_positives):
        found = leaning.false_positives
        how = "more" if found.first > found.second else "less"
        share = _values("", found.first, found.second)
        words.append(f"wrongly given {how} often with {other} ({share} of the images without the label)")
    return words


def masked_finding(masked: MaskedLabel, leaning: LabelLeaning, labels: Sequence[str]) -> list[str]:
    """What covering the co-occurring label shows; empty where nothing is found.

    Where one of two labels leans on the other, both are read from the same place, and both fall when it is
    covered. The one that leans is the one whose decisions follow the other label.
    """
    follows = any(
        _is_found(rate) and rate.first > rate.second for rate in (leaning.recall, leaning.false_positives)
    )
    if masked.difference is None or masked.difference.low <= 0 or not follows:
        return []
    words = (
        f"its probability falls when {labels[masked.pair.other]} is covered (by {masked.fall:.2f}, by "
        f"{masked.control_fall:.2f} when another region is)"
    )
    return [words]


def interval(difference: Difference) -> str:
    """In points of percent."""
    return f"{100 * difference.low:+.1f} to {100 * difference.high:+.1f}"


def _is_found(contrast: Contrast) -> bool:
    return contrast.difference is not None and contrast.difference.excludes_zero


def _values(what: str, one: float, other: float) -> str:
    return f"{what} {percent(one)} % against {percent(other)} %".strip()
