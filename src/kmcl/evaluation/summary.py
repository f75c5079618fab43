"""What is chosen on val, and what is measured of a split with it, once, for everything that shows it.

A run stores what `measure` gives; `kmcl evaluate`, reports, `compare` and the model card show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.bootstrap import BootstrapInterval, map_interval
from kmcl.evaluation.by_rules import evaluate_by_rules, rates_by_rules
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.guarantees import choose_guaranteed_thresholds
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.label_rules import LabelRules, logit
from kmcl.evaluation.levels import LevelMetrics, metrics_by_level
from kmcl.evaluation.metrics import Evaluation, rank
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.promised_rates import PromisedRates
from kmcl.evaluation.temperature import Calibration, Temperatures, calibration, fit_temperatures
from kmcl.evaluation.thresholds import Criterion, LabelThresholds, choose_thresholds
from kmcl.evaluation.uncertainty import UncertaintyReports, compare_uncertainties


@dataclass(frozen=True)
class ChosenOnVal:
    """thresholds and calibrators: None where there is no val.

    guarantee: what the values of the thresholds promise; those of labels without it are of the criterion
    """

    thresholds: LabelThresholds | None = None
    temperatures: Temperatures | None = None
    temperatures_and_biases: Temperatures | None = None
    guarantee: Guarantee | None = None

    def complete(self, rules: LabelRules) -> LabelRules:
        """The rules with what was chosen."""
        if self.thresholds is not None:
            rules = replace(
                rules,
                thresholds=_numbers(self.thresholds.values),
                threshold_support=self.thresholds.support,
                guarantee=self.guarantee,
            )
        if self.temperatures_and_biases is not None:
            fitted = self.temperatures_and_biases
            rules = replace(rules, temperatures=_numbers(fitted.temperatures), biases=_numbers(fitted.biases))
        return rules


def choose_on_val(
    val: Predictions | None,
    *,
    threshold: float = 0.5,
    criterion: Criterion = "f1",
    target: float | None = None,
    wish: GuaranteeWish | None = None,
) -> ChosenOnVal:
    """Thresholds and temperatures; nothing where val is None or empty.

    wish: a guarantee that thresholds are to keep, where val supports it
    """
    if val is None or not len(val):
        return ChosenOnVal()
    with_biases = fit_temperatures(val, with_bias=True)
    thresholds = choose_thresholds(val, criterion, target, threshold, calibration=with_biases)
    guarantee = None
    if wish is not None:
        values, guarantee = choose_guaranteed_thresholds(val, wish, thresholds.values)
        thresholds = replace(thresholds, values=values)
    return ChosenOnVal(thresholds, fit_temperatures(val), with_biases, guarantee)


@dataclass(frozen=True)
class SplitSummary:
    """What is measured of one split.

    evaluation:                at one threshold of the scores for all labels
    evaluation_own_thresholds: at each label's own, chosen on val, of the scores; None where there is no val
    calibration_*:             of the raw scores, with a temperature per label, and with a bias too
    uncertainty:               how well each uncertainty separates right decisions from wrong ones
    promised_rates:            what the guarantee promises, as achieved here; None without a guarantee
    levels:                    metrics by level, where labels have parents
    by_rules:                  of what `kmcl predict` shows: thresholds are calibrated probabilities
    calibration_by_rules:      of the probabilities that `kmcl predict` shows; None where it shows the scores
    """

    map_interval: BootstrapInterval
    evaluation: Evaluation
    evaluation_own_thresholds: Evaluation | None
    calibration_raw: Calibration
    calibration_temperature: Calibration | None
    calibration_temperature_and_bias: Calibration | None
    uncertainty: UncertaintyReports
    promised_rates: PromisedRates | None
    levels: tuple[LevelMetrics, ...]
    by_rules: Evaluation
    calibration_by_rules: Calibration | None

    def to_json(self) -> JsonObject:
        return to_json_object(self)

    def to_metrics(self) -> JsonObject:
        """The part of `metrics.json`."""
        values = self.to_json()
        del values["by_rules"], values["calibration_by_rules"]
        if not self.levels:
            del values["levels"]
        return values


def measure(
    predictions: Predictions,
    rules: LabelRules,
    *,
    threshold: float = 0.5,
    label_counts: npt.NDArray[np.integer] | None = None,
    val: Predictions | None = None,
    temperatures: Temperatures | None = None,
) -> SplitSummary:
    """Measure one split of a model, whose labels are those of the rules.

    threshold:    of the scores of all labels; decides where the rules have none
    label_counts: positives of each label in the training set, for rare, medium and frequent labels
    val:          where another split is measured; some uncertainties are fitted on it
    temperatures: without biases, fitted on val
    """
    own, raw = rules.thresholds, predictions.scores
    deciding = rules if own is not None else replace(rules, thresholds=(threshold,) * len(rules.labels))
    ranking = rank(predictions)
    by_rules = evaluate_by_rules(predictions, rules, ranking=ranking)
    calibrated = shown = None
    if rules.is_calibrated:
        calibrated = shown = calibration(replace(predictions, scores=rules.apply(raw)))
        if rules.parents is not None:
            raised = rules.calibrate(logit(raw)).astype(np.float32)
            shown = calibration(replace(predictions, scores=raised))
    return SplitSummary(
        map_interval=map_interval(predictions),
        evaluation=ranking.evaluate_at(threshold, label_counts=label_counts),
        evaluation_own_thresholds=None
        if own is None
        else ranking.evaluate(rules.present(raw), np.array(own), label_counts=label_counts),
        calibration_raw=calibration(predictions),
        calibration_temperature=None
        if temperatures is None
        else calibration(temperatures.calibrate(predictions)),
        calibration_temperature_and_bias=calibrated,
        uncertainty=compare_uncertainties(predictions, deciding, fitted_on=val),
        promised_rates=rates_by_rules(predictions, rules),
        levels=metrics_by_level(by_rules, rules),
        by_rules=by_rules,
        calibration_by_rules=shown,
    )


def measure_splits(
    predictions: Mapping[str, Predictions],
    rules: LabelRules,
    threshold: float,
    label_counts: npt.NDArray[np.integer] | None,
    chosen: ChosenOnVal,
) -> dict[str, SplitSummary]:
    """Every split of a run that has images, by name; what the other arguments are, `measure` says."""
    val = predictions.get("val") or None  # an empty split, whose length is 0, determines nothing
    return {
        name: measure(
            predicted,
            rules,
            threshold=threshold,
            label_counts=label_counts,
            val=None if name == "val" else val,
            temperatures=chosen.temperatures,
        )
        for name, predicted in predictions.items()
        if len(predicted)
    }


def metrics_of(chosen: ChosenOnVal, summaries: Mapping[str, SplitSummary]) -> JsonObject:
    """The part of `metrics.json` that is about val and test; null for a split without images."""
    values = to_json_object(chosen)
    guarantee = values.pop("guarantee")
    splits = {name: summaries[name].to_metrics() if name in summaries else None for name in ("val", "test")}
    return {**values, **splits, "guarantee": guarantee}


def _numbers(values: npt.NDArray[np.floating]) -> tuple[float, ...]:
    return tuple(map(float, values))
