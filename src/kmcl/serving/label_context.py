"""What is shown of a model's labels: probability with its interval, threshold and decision, on one scale.

Predictions in Python, the command line and the service all take their numbers from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.data.cooccurrence import Cooccurrence
from kmcl.evaluation.label_rules import LabelRules, rounded
from kmcl.evaluation.probability_intervals import ProbabilityIntervals
from kmcl.evaluation.ranking import Values

if TYPE_CHECKING:
    from kmcl.serving.image_predictor import BatchScores


class ShownScores(NamedTuple):
    """B x L numbers as they are shown, rounded to DECIMALS: present == (probability >= thresholds).

    low, high: of the 90 % probability interval; None for a model that was not calibrated
    thresholds: L, of the probabilities
    score:     before calibration
    """

    probability: Values
    low: Values | None
    high: Values | None
    thresholds: Values
    present: npt.NDArray[np.bool_]
    score: Values
    sigma: Values | None

    def unsure(self, cutoff: float) -> npt.NDArray[np.bool_]:
        """Decisions whose probability of an error is above the cut-off (`kmcl.evaluation.abstention`)."""
        return np.asarray(np.where(self.present, 1 - self.probability, self.probability) > cutoff)


@dataclass(frozen=True)
class LabelContext:
    """The rules of the labels, prepared once for all images.

    intervals:    None for a model that was not calibrated
    cooccurrence: for each label its co-occurring labels; empty where nothing is known
    """

    rules: LabelRules
    intervals: ProbabilityIntervals | None
    cooccurrence: Cooccurrence

    @classmethod
    def of(cls, rules: LabelRules) -> LabelContext:
        rows = rules.probability_intervals
        return cls(
            rules,
            None if rows is None else ProbabilityIntervals.from_rows(rows),
            rules.cooccurrence or ((),) * len(rules.labels),
        )

    @property
    def labels(self) -> tuple[str, ...]:
        return self.rules.labels

    def shown(self, scores: BatchScores) -> ShownScores:
        """The numbers of a batch that a user sees."""
        decided = self.rules.decide(scores.score, scores.probability)
        low = high = None
        if self.intervals is not None:
            interval = self.intervals.interval(scores.score, scores.probability, scores.sigma)
            low, high = rounded(interval.low), rounded(interval.high)
        return ShownScores(
            decided.probabilities,
            low,
            high,
            decided.thresholds,
            decided.present,
            rounded(scores.score),
            None if scores.sigma is None else rounded(scores.sigma),
        )
