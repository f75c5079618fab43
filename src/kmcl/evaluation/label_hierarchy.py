"""Labels that imply others, in what a model predicts: a dog is never more probable than an animal.

A label's parents are given as indices. NumPy only, since an exported model is used without torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError

Values = npt.NDArray[np.float64]
Reals = npt.NDArray[np.floating]

ParentRows = tuple[tuple[int, ...], ...]
"""For each label the indices of its parents."""


def parent_rows(labels: Sequence[str], parents: Mapping[str, Sequence[str]]) -> ParentRows:
    """The parents of each label by index, from those by name."""
    index = {label: place for place, label in enumerate(labels)}
    return tuple(tuple(index[name] for name in parents.get(label, ())) for label in labels)


def check_parents(parents: object, num_labels: int) -> None:
    """InputError for anything but a row of indices for each label, without circles."""
    if not isinstance(parents, tuple) or len(parents) != num_labels:
        raise InputError(f"parents must be one row for each of {num_labels} labels; got {parents!r:.80}")
    for row in parents:
        if not isinstance(row, tuple) or not all(type(one) is int and 0 <= one < num_labels for one in row):
            raise InputError(f"parents must hold indices of labels; got {row!r:.80}")
    levels_of(parents)


def levels_of(parents: ParentRows) -> tuple[int, ...]:
    """How far each label is below the top: 0 without parents, else one more than its lowest parent."""
    levels: dict[int, int] = {}
    waiting = list(range(len(parents)))
    while waiting:
        ready = [label for label in waiting if all(parent in levels for parent in parents[label])]
        if not ready:
            raise InputError("parents go round in a circle: a label would imply itself")
        for label in ready:
            levels[label] = 1 + max((levels[parent] for parent in parents[label]), default=-1)
        waiting = [label for label in waiting if label not in levels]
    return tuple(levels[label] for label in range(len(parents)))


def children_first(parents: ParentRows) -> list[tuple[int, int]]:
    """Pairs (child, parent), the lowest children first: one pass over them reaches all ancestors."""
    levels = levels_of(parents)
    pairs = [(child, parent) for child, row in enumerate(parents) for parent in row]
    return sorted(pairs, key=lambda pair: -levels[pair[0]])


def raise_parents(probabilities: Reals, parents: ParentRows) -> Values:
    """N x L probabilities in which no label is above one that it implies: the latter is raised to it.

        p_k = max over k and all labels l below k of p_l

    A label is at least as probable as each that implies it. Where the model says otherwise, one of the two
    numbers is wrong; what it found of the child is evidence for the parent, while a low parent is often only
    a parent that was seen in other forms. So nothing that was found is lost.
    """
    raised: Values = np.array(probabilities, dtype=np.float64)
    for child, parent in children_first(parents):
        raised[..., parent] = np.maximum(raised[..., parent], raised[..., child])
    return raised


def lower_children(probabilities: Reals, parents: ParentRows) -> Values:
    """N x L probabilities in which no label is above one that it implies: the former is lowered to it."""
    lowered: Values = np.array(probabilities, dtype=np.float64)
    for child, parent in reversed(children_first(parents)):
        lowered[..., child] = np.minimum(lowered[..., child], lowered[..., parent])
    return lowered


def lower_parents(thresholds: Values, parents: ParentRows) -> Values:
    """L thresholds in which no label has a higher one than any that implies it.

    With probabilities of `raise_parents`, a label that is present then has all that it implies present.
    """
    lowered: Values = np.array(thresholds, dtype=np.float64)
    for child, parent in children_first(parents):
        lowered[parent] = min(lowered[parent], lowered[child])
    return lowered
