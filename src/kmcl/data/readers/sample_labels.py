"""The labels that come with each sample of a shard, gathered to arrays."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.groups import group_name, has_groups
from kmcl.data.source_cache import Arrays


class SampleLabels(NamedTuple):
    """Names of the labels that are present and of those that are not known; the group, or nothing."""

    present: list[str]
    unknown: list[str]
    group: str

    @classmethod
    def parse(cls, text: str | bytes) -> SampleLabels:
        """From JSON, as in {"labels": ["cat", "dog"], "unknown": ["hat"], "group": "patient 7"}.

        ValueError or TypeError for anything else.
        """
        values = json.loads(text)
        try:
            present, unknown = values["labels"], values.get("unknown", [])
        except (KeyError, AttributeError) as error:
            raise TypeError(str(error)) from None
        for names in (present, unknown):
            if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
                raise TypeError("labels must be a list of names")
        return cls(present, unknown, group_name(values.get("group")))


class LabelPairs:
    """Labels of one sample after the other, in little memory; `arrays` numbers the names alphabetically."""

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}
        self._pairs = {"present": array("q"), "unknown": array("q")}
        self._groups: list[str] = []

    def add(self, sample: SampleLabels) -> None:
        row = len(self._groups)
        for key, names in (("present", sample.present), ("unknown", sample.unknown)):
            for name in names:
                self._pairs[key].extend((row, self._number_of.setdefault(name, len(self._number_of))))
        self._groups.append(sys.intern(sample.group))

    def arrays(self) -> Arrays:
        names = np.array(list(self._number_of), dtype=np.str_)
        order = np.argsort(names)
        place = np.argsort(order)
        numbered = {key: np.array(pairs, dtype=np.int64).reshape(-1, 2) for key, pairs in self._pairs.items()}
        for pairs in numbered.values():
            pairs[:, 1] = place[pairs[:, 1]]
        return {"groups": np.array(self._groups), "labels": names[order], **numbered}


def targets_of(found: Arrays, labels: Sequence[str]) -> npt.NDArray[np.int8]:
    """N x L targets of what `LabelPairs.arrays` gave; ValueError with a name that is not among the labels."""
    position = {label: number for number, label in enumerate(labels)}
    names = found["labels"].tolist()
    if missing := [name for name in names if name not in position]:
        raise ValueError(missing[0])
    targets = np.zeros((len(found["groups"]), len(labels)), dtype=np.int8)
    columns = np.array([position[name] for name in names], dtype=np.int64)
    for key, value in (("present", 1), ("unknown", UNKNOWN)):
        rows, numbers = found[key].astype(np.int64).reshape(-1, 2).T
        targets[rows, columns[numbers]] = value
    return targets


def groups_of(found: Arrays) -> npt.NDArray[np.str_] | None:
    groups = found["groups"].astype(np.str_)
    return groups if has_groups(groups) else None
