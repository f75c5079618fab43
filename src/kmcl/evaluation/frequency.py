"""Average precision over rare, medium and frequent labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values, mean_of_defined

GROUPS = ("rare", "medium", "frequent")


@dataclass(frozen=True)
class FrequencyGroup:
    """One third of the labels by their number of positives.

    mean_average_precision is over those of its labels that have one; NaN when none has.
    """

    name: str
    labels: tuple[str, ...]
    lowest_count: int | None
    highest_count: int | None
    mean_average_precision: float


def frequency_groups(
    labels: tuple[str, ...], average_precisions: Values, counts: npt.NDArray[np.integer]
) -> tuple[FrequencyGroup, ...]:
    """Split the labels into terciles by count and average the precision of each.

    counts: L numbers of positives, usually of the training set.

    A label's rank is the share of labels with a lower count, plus half the share with the same count
    (itself included): below 1/3 it is rare, below 2/3 medium, else frequent. Labels with equal counts are
    therefore in the same group, and a group may be empty: with equal counts everywhere all are medium.
    """
    if counts.shape != (len(labels),) or (counts < 0).any():
        raise InputError(f"label counts must be {len(labels)} numbers of at least 0, got {counts.tolist()}")
    ordered = np.sort(counts)
    lower = np.searchsorted(ordered, counts, side="left")
    lower_or_equal = np.searchsorted(ordered, counts, side="right")
    # rank = (lower + lower_or_equal) / 2L, below 1, compared with 1/3 and 2/3 in integers.
    group_of_label = 3 * (lower + lower_or_equal) // (2 * len(labels))
    return tuple(
        _group(name, labels, average_precisions, counts, np.flatnonzero(group_of_label == group))
        for group, name in enumerate(GROUPS)
    )


def _group(
    name: str,
    labels: tuple[str, ...],
    average_precisions: Values,
    counts: npt.NDArray[np.integer],
    members: npt.NDArray[np.int64],
) -> FrequencyGroup:
    return FrequencyGroup(
        name=name,
        labels=tuple(labels[member] for member in members),
        lowest_count=int(counts[members].min()) if len(members) else None,
        highest_count=int(counts[members].max()) if len(members) else None,
        mean_average_precision=mean_of_defined(average_precisions[members]),
    )
