"""Groups of labels: from a file, or by clustering labels by their correlation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import yaml

from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values
from kmcl.reports.drawing import COLOURS

MOST_GROUPS = len(COLOURS)
REST = "other"


@dataclass(frozen=True)
class LabelGroups:
    """names: of the groups. of_label: L group numbers."""

    names: tuple[str, ...]
    of_label: npt.NDArray[np.int64]

    @property
    def order(self) -> npt.NDArray[np.int64]:
        """The order of labels in which groups are contiguous."""
        return np.argsort(self.of_label, kind="stable")

    def of_images(self, targets: npt.NDArray[np.int8]) -> npt.NDArray[np.int64]:
        """The group most of an image's labels belong to, the first in a tie; -1 for no label."""
        carries = targets == 1
        counts = np.stack(
            [carries[:, self.of_label == group].sum(axis=1) for group in range(len(self.names))], axis=1
        )
        return np.where(counts.any(axis=1), counts.argmax(axis=1), -1)


def cluster_labels(labels: tuple[str, ...], correlation: Values) -> LabelGroups:
    """Average-linkage clusters of 1 - correlation; their number, at most 7, has the best silhouette."""
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.metrics import silhouette_score

    if len(labels) < 4:
        return LabelGroups(labels, np.arange(len(labels)))
    distance = 1 - (correlation + correlation.T) / 2
    np.fill_diagonal(distance, 0)
    distance = np.maximum(distance, 0)
    candidates = []
    for count in range(2, min(MOST_GROUPS, len(labels) - 1) + 1):
        model = AgglomerativeClustering(n_clusters=count, metric="precomputed", linkage="average")
        found = model.fit_predict(distance)
        candidates.append((silhouette_score(distance, found, metric="precomputed"), -count, found))
    _, _, best = max(candidates, key=lambda candidate: candidate[:2])
    members = [np.flatnonzero(best == group) for group in range(best.max() + 1)]
    members.sort(key=len, reverse=True)
    of_label = np.empty(len(labels), dtype=np.int64)
    for group, rows in enumerate(members):
        of_label[rows] = group
    return LabelGroups(tuple(_group_name(labels, rows) for rows in members), of_label)


def read_groups(path: Path, labels: tuple[str, ...]) -> LabelGroups:
    """Groups from a YAML or JSON file that maps each group's name to its labels; the rest is "other"."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file of label groups") from None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as label groups: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(value, list) for value in content.values()):
        raise InputError(f"{path}: must map the name of each group to a list of labels")
    of_label = np.full(len(labels), len(content), dtype=np.int64)
    for group, (name, members) in enumerate(content.items()):
        for member in map(str, members):
            if member not in labels:
                raise InputError(f"{path}: group {name!r} has {member!r}, which is no label of the run")
            place = labels.index(member)
            if of_label[place] != len(content):
                raise InputError(f"{path}: label {member!r} stands in two groups")
            of_label[place] = group
    names = tuple(str(name) for name in content)
    return LabelGroups((*names, REST) if (of_label == len(content)).any() else names, of_label)


def _group_name(labels: tuple[str, ...], members: npt.NDArray[np.int64]) -> str:
    shown = ", ".join(labels[member] for member in members[:3])
    return shown if len(members) <= 3 else f"{shown} and {len(members) - 3} more"
