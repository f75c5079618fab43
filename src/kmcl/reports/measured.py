"""A run's predictions evaluated for a report: metrics, curves and calibration, from the predictions alone.

Only the bootstrap interval is taken from metrics.json, so that a report can be made without it and can say if
the two disagree.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from kmcl.evaluation.bootstrap import BootstrapInterval
from kmcl.evaluation.by_rules import evaluate_by_rules
from kmcl.evaluation.calibration import Calibration, calibration
from kmcl.evaluation.intervals import map_interval
from kmcl.evaluation.label_rules import Decisions, LabelRules, logit
from kmcl.evaluation.metrics import Evaluation, evaluate
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import OperatingPoints, Values, label_points
from kmcl.evaluation.uncertainty import UncertaintyReports, compare_uncertainties
from kmcl.reports.run_parts import RunParts

RECALLS = np.linspace(0, 1, 51)
MAP_TOLERANCE = 5e-4


@dataclass(frozen=True)
class Measured:
    """One run's predictions, evaluated.

    own:                  at each label's own threshold, a probability; None where the model has none
    decisions:            the probabilities, thresholds and decisions that `kmcl predict` gives
    calibrated:           with the temperatures and biases of the model; None where it has none
    precision_at_recalls: L x len(RECALLS), NaN for a label without positives
    """

    run: RunParts
    predictions: Predictions
    split: str
    evaluation: Evaluation
    own: Evaluation | None
    decisions: Decisions
    interval: BootstrapInterval
    raw: Calibration
    calibrated: Calibration | None
    uncertainty: UncertaintyReports
    precision_at_recalls: Values

    @property
    def name(self) -> str:
        return self.run.name


def measure(run: RunParts) -> Measured | None:
    """None where the run has no predictions."""
    predictions = run.predictions
    if predictions is None:
        return None
    split = run.split_name
    evaluation = evaluate(predictions, 0.5)
    stated = ((run.metrics or {}).get(split) or {}).get("evaluation", {}).get("mean_average_precision")
    if isinstance(stated, float) and abs(stated - evaluation.mean_average_precision) > MAP_TOLERANCE:
        run.problems.append(
            f"{run.folder.metrics_file}: says mAP {100 * stated:.2f} % on {split}, the predictions give "
            f"{100 * evaluation.mean_average_precision:.2f} %; the report shows the latter"
        )
    calibrated = _calibrated(run, predictions)
    rules = _rules(run, predictions)
    val = run.val if split == "test" and run.val is not None and len(run.val) else None
    return Measured(
        run=run,
        predictions=predictions,
        split=split,
        evaluation=evaluation,
        own=None if rules.thresholds is None else evaluate_by_rules(predictions, rules),
        decisions=rules.decide(predictions.scores),
        interval=_interval(run, split, predictions),
        raw=calibration(predictions),
        calibrated=None if calibrated is None else calibration(calibrated),
        uncertainty=compare_uncertainties(
            predictions,
            rules,
            fitted_on=val if val is not None and val.labels == predictions.labels else None,
        ),
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


def _interval(run: RunParts, split: str, predictions: Predictions) -> BootstrapInterval:
    stored = ((run.metrics or {}).get(split) or {}).get("map_interval")
    if isinstance(stored, dict):
        try:
            found = BootstrapInterval(**stored)
            if all(isinstance(value, float) for value in (found.estimate, found.low, found.high)):
                return found
        except TypeError:
            pass
    return map_interval(predictions)


def _rules(run: RunParts, predictions: Predictions) -> LabelRules:
    """The model's; a threshold of 0.5 where there is none, or it has other labels."""
    rules = None if run.description is None else run.description.rules
    return LabelRules(predictions.labels) if rules is None or rules.labels != predictions.labels else rules


def _calibrated(run: RunParts, predictions: Predictions) -> Predictions | None:
    rules = None if run.description is None else run.description.rules
    if rules is None or not rules.is_calibrated or rules.labels != predictions.labels:
        return None
    return replace(predictions, scores=rules.calibrate(logit(predictions.scores)).astype(np.float32))
