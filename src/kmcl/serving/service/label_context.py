"""What the service knows about a model's labels besides their scores."""

from __future__ import annotations

from dataclasses import dataclass

from kmcl.data.cooccurrence import Cooccurrence
from kmcl.evaluation.probability_intervals import ProbabilityIntervals
from kmcl.evaluation.ranking import Values
from kmcl.evaluation.temperature import logit
from kmcl.models.label_rules import LabelRules


@dataclass(frozen=True)
class LabelContext:
    """The rules of the labels, prepared once for all requests.

    probability_thresholds: the thresholds of the scores on the scale of the calibrated probabilities
    intervals:              None for a model that was not calibrated
    cooccurrence:           for each label its co-occurring labels; empty where nothing is known
    """

    rules: LabelRules
    thresholds: Values
    probability_thresholds: Values
    intervals: ProbabilityIntervals | None
    cooccurrence: Cooccurrence

    @classmethod
    def of(cls, rules: LabelRules) -> LabelContext:
        rows, thresholds = rules.probability_intervals, rules.threshold_values
        return cls(
            rules,
            thresholds,
            rules.calibrate(logit(thresholds)),
            None if rows is None else ProbabilityIntervals.from_rows(rows),
            rules.cooccurrence or ((),) * len(rules.labels),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        return self.rules.labels
