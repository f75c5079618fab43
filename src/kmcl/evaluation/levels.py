"""Metrics by the level of the labels, where labels imply others: those on top, their children, and so on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmcl.evaluation.decisions import harmonic_mean
from kmcl.evaluation.label_hierarchy import levels_of
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.metrics import Evaluation
from kmcl.evaluation.ranking import mean_of_defined


@dataclass(frozen=True)
class LevelMetrics:
    """Means over the labels of a level that have positives; NaN where there are none.

    level:      1 for labels without parents, 2 for their children, and so on
    CP, CR, CF1: at the thresholds, as `DecisionMetrics` has them
    """

    level: int
    labels: tuple[str, ...]
    mean_average_precision: float
    mean_auc: float
    CP: float
    CR: float
    CF1: float


def metrics_by_level(evaluation: Evaluation, rules: LabelRules) -> tuple[LevelMetrics, ...]:
    """The levels from the top; empty where no label has parents."""
    if rules.parents is None:
        return ()
    level_of = dict(zip(rules.labels, levels_of(rules.parents), strict=True))
    found = []
    for level in sorted({level_of[row.label] for row in evaluation.labels}):
        rows = [row for row in evaluation.labels if level_of[row.label] == level]
        columns = {
            name: mean_of_defined(np.array([getattr(row, name) for row in rows], dtype=np.float64))
            for name in ("average_precision", "auc", "precision", "recall")
        }
        found.append(
            LevelMetrics(
                level=level + 1,
                labels=tuple(row.label for row in rows),
                mean_average_precision=columns["average_precision"],
                mean_auc=columns["auc"],
                CP=columns["precision"],
                CR=columns["recall"],
                CF1=harmonic_mean(columns["precision"], columns["recall"]),
            )
        )
    return tuple(found)
