"""The figures that tables show of a split: in `kmcl evaluate`, reports, comparisons and model cards.

A metric of `Evaluation` that is named here, and one of `DecisionMetrics` that is named in `DECISIONS`, is in
all of them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from kmcl.evaluation.decisions import DECISIONS


class Figure(NamedTuple):
    """A share, shown in percent.

    place: in the part of a split of `metrics.json`
    """

    title: str
    place: str

    def of(self, measured: Any) -> float:
        """NaN where it is undefined, or is not measured, as in a run of an earlier version."""
        for key in self.place.split("."):
            measured = None if measured is None else measured.get(key)
        return math.nan if measured is None else float(measured)


def _decisions(title: str, place: str) -> tuple[Figure, ...]:
    return tuple(Figure(f"{name}, {title}", f"{place}.{name}") for name in DECISIONS)


OF_LABELS = (
    Figure("mAP", "evaluation.mean_average_precision"),
    Figure("11-point mAP", "evaluation.mean_eleven_point_average_precision"),
    Figure("mean AUC", "evaluation.mean_auc"),
)
OF_IMAGES = (Figure("ranking loss", "evaluation.image_ranking.ranking_loss"),)
FIGURES = (
    *OF_LABELS,
    *_decisions("own thresholds", "evaluation_own_thresholds.at_threshold"),
    *_decisions("fixed threshold", "evaluation.at_threshold"),
    *_decisions("top 3", "evaluation.top_k"),
    *OF_IMAGES,
    Figure("calibration error", "calibration_raw.mean_label_error"),
    Figure("calibration error, calibrated", "calibration_temperature_and_bias.mean_label_error"),
)
HEADLINES = ("mAP", "CF1, own thresholds", "OF1, own thresholds", "calibration error, calibrated")
"""Of these, what a model card has room for."""
