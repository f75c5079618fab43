"""From predictions to figures: metrics, thresholds, calibration, uncertainty and their intervals.

Everything here is a pure function over NumPy arrays; `evaluate` puts the metrics together. A pair (image,
label) whose target is unknown or ignored is excluded from all of them.
"""

from kmcl.evaluation.bootstrap import BootstrapInterval, PairedDifference, bootstrap_map, compare_map
from kmcl.evaluation.decisions import DecisionMetrics
from kmcl.evaluation.drift import Check, Drift
from kmcl.evaluation.guarantee import Guarantee, GuaranteeWish
from kmcl.evaluation.label_rules import Decisions, LabelRules
from kmcl.evaluation.metrics import Evaluation, FrequencyGroup, ImageRanking, LabelMetrics, evaluate
from kmcl.evaluation.predictions import Predictions, Units
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.evaluation.temperature import Temperatures
from kmcl.evaluation.thresholds import LabelThresholds, choose_thresholds

__all__ = [
    "BootstrapInterval",
    "Check",
    "DecisionMetrics",
    "Decisions",
    "Drift",
    "Evaluation",
    "FrequencyGroup",
    "Guarantee",
    "GuaranteeWish",
    "ImageRanking",
    "LabelMetrics",
    "LabelRules",
    "LabelThresholds",
    "PairedDifference",
    "Predictions",
    "Temperatures",
    "Units",
    "bootstrap_map",
    "choose_thresholds",
    "compare_map",
    "evaluate",
    "mean_average_precision",
]
