"""Labels that imply others: a dog is an animal. Implied labels are filled in, contradictions are found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN, Dataset, Split
from kmcl.data.yaml_files import read_yaml
from kmcl.errors import InputError, suggest
from kmcl.home_folder import expand_home

Parents = Mapping[str, tuple[str, ...]]
"""The parents of each label that has any."""

Targets = npt.NDArray[np.int8]


def read_parents(given: Path | Mapping[str, Sequence[str]], folder: Path) -> Parents:
    """The parents of labels from a mapping, or from a YAML file: `dog: animal` or `dog: [animal, pet]`.

    folder: where a relative path starts
    """
    if isinstance(given, Path):
        path = folder / expand_home(given)
        content = read_yaml(path, "parents")
        if not isinstance(content, dict) or not content:
            raise InputError(f"parents {path} must name the parents of labels, as in 'dog: animal'")
    else:
        content = dict(given)
    parents = {}
    for label, names in content.items():
        listed = names if isinstance(names, (list, tuple)) else [names]
        if not listed or not all(isinstance(name, str | int | float) and str(name) for name in listed):
            raise InputError(f"parents of {str(label)!r} must be a name or a list of names; got {names!r}")
        parents[str(label)] = tuple(dict.fromkeys(str(name) for name in listed))
    for label in parents:
        _ancestors(label, parents)  # refuses circles
    return parents


def with_parents(dataset: Dataset, parents: Parents) -> Dataset:
    """The dataset with implied labels filled in: a label that is present has its parents and theirs.

    A parent that is no label yet becomes one: present with any of its children, absent where all of them are.
    """
    unknown_names = [
        label for label in parents if label not in dataset.labels and not _children(label, parents)
    ]
    if unknown_names:
        near = suggest(unknown_names[0], dataset.labels)
        raise InputError(f"parents are given of {unknown_names[0]!r}, which is not a label{near}")
    named = dict.fromkeys(name for names in parents.values() for name in names)
    new = [name for name in named if name not in dataset.labels]
    labels = (*dataset.labels, *new)
    num_filled = 0
    splits = {}
    for name, split in dataset.splits.items():
        splits[name], num = _filled(split, labels, new, parents)
        num_filled += num
    notes = [f"parents: {num_filled} implied targets were filled in"]
    if new:
        notes.append(f"parents: {', '.join(new)} became labels")
    return replace(dataset, labels=labels, splits=splits, notes=(*dataset.notes, *notes), parents=parents)


def _filled(split: Split, labels: Sequence[str], new: Sequence[str], parents: Parents) -> tuple[Split, int]:
    num_given = split.targets.shape[1]
    targets = np.full((len(split.targets), len(labels)), UNKNOWN, dtype=np.int8)
    targets[:, :num_given] = split.targets
    column = {label: index for index, label in enumerate(labels)}
    for label in _deepest_first(new, parents):
        below = targets[:, [column[child] for child in _children(label, parents) if child in column]]
        targets[:, column[label]] = np.where((below == 1).any(axis=1), 1, below.min(axis=1))
    given = targets[:, :num_given].copy()
    for label, index in column.items():
        for ancestor in _ancestors(label, parents):
            targets[targets[:, index] == 1, column[ancestor]] = 1
    ignored = split.ignored
    if ignored is not None:
        ignored = np.pad(ignored, ((0, 0), (0, len(new))))
    return replace(split, targets=targets, ignored=ignored), int((targets[:, :num_given] != given).sum())


class Contradiction(NamedTuple):
    """A row in which a label is present and one that it implies is absent."""

    row: int
    label: str
    ancestor: str


def contradictions(targets: Targets, labels: Sequence[str], parents: Parents) -> Iterator[Contradiction]:
    column = {label: index for index, label in enumerate(labels)}
    for label, index in column.items():
        for ancestor in _ancestors(label, parents):
            if ancestor in column:
                clash = (targets[:, index] == 1) & (targets[:, column[ancestor]] == 0)
                for row in np.flatnonzero(clash).tolist():
                    yield Contradiction(row, label, ancestor)


def without_descendants(targets: Targets, labels: Sequence[str], parents: Parents) -> Targets:
    """Where a label is known to be absent, unknown labels that imply it are absent too."""
    column = {label: index for index, label in enumerate(labels)}
    filled = targets.copy()
    for label, index in column.items():
        for ancestor in _ancestors(label, parents):
            if ancestor in column:
                filled[(filled[:, index] == UNKNOWN) & (targets[:, column[ancestor]] == 0), index] = 0
    return filled


def _children(label: str, parents: Parents) -> list[str]:
    return [child for child, names in parents.items() if label in names]


def _ancestors(label: str, parents: Parents) -> tuple[str, ...]:
    """Parents, their parents and so on; InputError if that comes back to the label."""
    found: dict[str, None] = {}
    waiting = list(parents.get(label, ()))
    while waiting:
        name = waiting.pop()
        if name == label:
            raise InputError(f"parents go round in a circle: {label!r} would imply itself")
        if name not in found:
            found[name] = None
            waiting.extend(parents.get(name, ()))
    return tuple(found)


def _deepest_first(labels: Sequence[str], parents: Parents) -> list[str]:
    """Labels before their ancestors."""
    return sorted(labels, key=lambda label: -len(_ancestors(label, parents)))
