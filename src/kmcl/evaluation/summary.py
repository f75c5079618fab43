"""The metrics of a finished run: thresholds and calibration chosen on val, then test evaluated once."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.bootstrap import BootstrapInterval
from kmcl.evaluation.calibration import Calibration, calibration
from kmcl.evaluation.decisions import rules_at
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.guarantees import choose_guaranteed_thresholds
from kmcl.evaluation.intervals import map_interval
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.label_hierarchy import ParentRows
from kmcl.evaluation.metrics import Evaluation, evaluate, evaluate_decisions
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.promised_rates import PromisedRates, promised_rates
from kmcl.evaluation.temperature import Temperatures, fit_temperatures
from kmcl.evaluation.thresholds import Criterion, LabelThresholds, choose_thresholds
from kmcl.evaluation.uncertainty import UncertaintyReports, compare_uncertainties


@dataclass(frozen=True)
class SplitSummary:
    """The metrics of one split.

    evaluation:                at the one threshold of all labels
    evaluation_own_thresholds: at each label's own, chosen on val; None where there is no val
    calibration_*:             of the raw scores, with a temperature per label, and with a bias too
    uncertainty:               how well each uncertainty separates right decisions from wrong ones
    promised_rates:            what the guarantee promises, as achieved here; None without a guarantee
    """

    map_interval: BootstrapInterval
    evaluation: Evaluation
    evaluation_own_thresholds: Evaluation | None
    calibration_raw: Calibration
    calibration_temperature: Calibration | None
    calibration_temperature_and_bias: Calibration | None
    uncertainty: UncertaintyReports
    promised_rates: PromisedRates | None = None


@dataclass(frozen=True)
class RunSummary:
    """thresholds and calibrators: chosen on val, None where there is none.

    guarantee: what the values of the thresholds promise; those of labels without it are of the criterion
    """

    thresholds: LabelThresholds | None
    temperatures: Temperatures | None
    temperatures_and_biases: Temperatures | None
    val: SplitSummary | None
    test: SplitSummary | None
    guarantee: Guarantee | None = None

    def to_json(self) -> JsonObject:
        return to_json_object(self)


def summarise_run(
    val: Predictions | None,
    test: Predictions | None,
    *,
    threshold: float = 0.5,
    criterion: Criterion = "f1",
    target: float | None = None,
    label_counts: npt.NDArray[np.integer] | None = None,
    wish: GuaranteeWish | None = None,
    parents: ParentRows | None = None,
) -> RunSummary:
    """Choose thresholds and temperatures on val and evaluate both splits with them.

    label_counts: positives of each label in the training set, for rare, medium and frequent labels
    wish:         a guarantee that thresholds are to keep, where val supports it
    parents:      for each label those that it implies, which are predicted with it
    """
    fitted_on = val or None  # an empty split, whose length is 0, determines nothing
    temperatures = fit_temperatures(fitted_on) if fitted_on else None
    with_biases = fit_temperatures(fitted_on, with_bias=True) if fitted_on else None
    thresholds = (
        choose_thresholds(fitted_on, criterion, target, threshold, calibration=with_biases)
        if fitted_on
        else None
    )
    guarantee: Guarantee | None = None
    if wish is not None and fitted_on and thresholds is not None:
        values, guarantee = choose_guaranteed_thresholds(fitted_on, wish, thresholds.values)
        thresholds = replace(thresholds, values=values)

    def measure(predictions: Predictions | None) -> SplitSummary | None:
        if predictions is None or len(predictions) == 0:
            return None
        rules = replace(
            rules_at(predictions.labels, threshold if thresholds is None else thresholds.values),
            temperatures=None if with_biases is None else tuple(with_biases.temperatures.tolist()),
            biases=None if with_biases is None else tuple(with_biases.biases.tolist()),
            parents=parents,
        )
        present = rules.present(predictions.scores)
        return SplitSummary(
            map_interval=map_interval(predictions),
            evaluation=evaluate(predictions, threshold, label_counts=label_counts),
            evaluation_own_thresholds=None
            if thresholds is None
            else evaluate_decisions(predictions, present, thresholds.values, label_counts=label_counts),
            calibration_raw=calibration(predictions),
            calibration_temperature=None
            if temperatures is None
            else calibration(temperatures.calibrate(predictions)),
            calibration_temperature_and_bias=None
            if with_biases is None
            else calibration(with_biases.calibrate(predictions)),
            uncertainty=compare_uncertainties(
                predictions,
                rules,
                fitted_on=fitted_on if predictions is not val else None,
                calibration=with_biases,
            ),
            promised_rates=None if guarantee is None else promised_rates(predictions, present, guarantee),
        )

    return RunSummary(thresholds, temperatures, with_biases, measure(val), measure(test), guarantee)
