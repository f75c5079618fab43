"""A run's predictions evaluated for a report: metrics and calibration as the run stored them, and curves.

A run without stored figures, or whose predictions or model changed since, is measured again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kmcl.evaluation import summary as evaluation_summary
from kmcl.evaluation.json_values import JsonObject
from kmcl.evaluation.label_rules import Decisions, LabelRules
from kmcl.evaluation.metrics import Evaluation
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import OperatingPoints, Values, label_points
from kmcl.evaluation.summary import SplitSummary
from kmcl.reports.blocks import percent
from kmcl.reports.run_parts import RunParts
from kmcl.runs.evaluation import read_evaluation

RECALLS = np.linspace(0, 1, 51)
MAP_TOLERANCE = 5e-4
SCORE_THRESHOLD = 0.5
"""Of all labels, in every report, so that runs can be compared."""


@dataclass(frozen=True)
class Measured:
    """One run's predictions, evaluated.

    own:                  at each label's own threshold, a probability; None where the model has none
    decisions:            the probabilities, thresholds and decisions that `kmcl predict` gives
    precision_at_recalls: L x len(RECALLS), NaN for a label without positives
    """

    run: RunParts
    predictions: Predictions
    split: str
    summary: SplitSummary
    own: Evaluation | None
    decisions: Decisions
    precision_at_recalls: Values

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def evaluation(self) -> Evaluation:
        """At a score of 0.5."""
        return self.summary.evaluation

    def as_shown(self) -> JsonObject:
        """As in `metrics.json`, but calibrated are the probabilities that `kmcl predict` shows."""
        values = self.summary.to_json()
        return values | {"calibration_temperature_and_bias": values["calibration_by_rules"]}

    def interval_in_words(self) -> str:
        """Of mAP, in percent."""
        return f"{percent(self.summary.map_interval.low)}–{percent(self.summary.map_interval.high)}"


def measure(run: RunParts) -> Measured | None:
    """None where the run has no predictions."""
    predictions = run.predictions
    if predictions is None:
        return None
    split, rules = run.split_name, _rules(run, predictions)
    summary = read_evaluation(run.folder, rules).get(split)
    if summary is None or summary.evaluation.threshold != SCORE_THRESHOLD:
        val = run.val if split == "test" and run.val is not None and len(run.val) else None
        fitted_on = val if val is not None and val.labels == predictions.labels else None
        summary = evaluation_summary.measure(predictions, rules, threshold=SCORE_THRESHOLD, val=fitted_on)
    found = summary.evaluation.mean_average_precision
    stated = ((run.metrics or {}).get(split) or {}).get("evaluation", {}).get("mean_average_precision")
    if isinstance(stated, float) and abs(stated - found) > MAP_TOLERANCE:
        run.problems.append(
            f"{run.folder.metrics_file}: says mAP {100 * stated:.2f} % on {split}, the predictions give "
            f"{100 * found:.2f} %; the report shows the latter"
        )
    return Measured(
        run=run,
        predictions=predictions,
        split=split,
        summary=summary,
        own=None if rules.thresholds is None else summary.by_rules,
        decisions=rules.decide(predictions.scores),
        precision_at_recalls=np.stack(
            [interpolated_precision(points) for points in label_points(predictions)]
        ),
    )


def interpolated_precision(points: OperatingPoints) -> Values:
    """The best precision at each of RECALLS or any higher recall; NaN without positives."""
    if not len(points.scores) or points.true_positives[-1] == 0:
        return np.full(len(RECALLS), np.nan)
    precision = points.true_positives / points.predicted
    best_from_here = np.maximum.accumulate(precision[::-1])[::-1]
    recall = points.true_positives / points.true_positives[-1]
    return np.asarray(best_from_here[np.searchsorted(recall, RECALLS - 1e-12)])


def _rules(run: RunParts, predictions: Predictions) -> LabelRules:
    """The model's; a threshold of 0.5 where there is none, or it has other labels."""
    rules = None if run.description is None else run.description.rules
    return LabelRules(predictions.labels) if rules is None or rules.labels != predictions.labels else rules
