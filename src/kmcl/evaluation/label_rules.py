"""How scores become calibrated probabilities and decisions, label by label.

A label's calibrated probability is sigmoid(logit / T + b) with its temperature T and bias b. Its threshold is
chosen on the scores, as the model gives them in float32, and applied to them: `LabelRules.present` decides
for everything that predicts, evaluates or reports. The threshold is shown as the probability that a score
there has, and rounded numbers are on the same side of each other as the exact ones. NumPy only, since an
exported model is used without torch.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from kmcl.data.cooccurrence import Cooccurrence
from kmcl.errors import InputError
from kmcl.evaluation.guarantee import Guarantee
from kmcl.evaluation.label_hierarchy import (
    ParentRows,
    check_parents,
    lower_children,
    lower_parents,
    raise_parents,
)

MAX_LABELS = 100_000
NUMBERS_PER_INTERVAL = 8
DEFAULT_THRESHOLD, DEFAULT_TEMPERATURE, DEFAULT_BIAS = 0.5, 1.0, 0.0
DECIMALS = 6
"""Of probabilities and thresholds, where they are shown: the precision of float32."""
STEP = 10.0**-DECIMALS
MIN_THRESHOLD_SUPPORT = 5
"""Positives on val, or negatives where those are fewer, below which a label's threshold is mostly chance."""

IntervalRows = tuple[tuple[float, ...], ...]
"""For each label the numbers of its probability interval; see `kmcl.evaluation.probability_intervals`."""

Values = npt.NDArray[np.float64]
Reals = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]


def sigmoid(values: Values) -> Values:
    """1 / (1 + exp(-x)), with exact relative precision near 0 and no overflow."""
    decay = np.exp(-np.abs(values))
    return np.asarray(np.where(values >= 0, 1.0, decay) / (1 + decay))


def logit(scores: Reals) -> Values:
    """log(p / (1 - p)), finite: 0 counts as the smallest normal float32, 1 as the largest float32 below 1.

    The bounds differ because float32 has many numbers near 0 and few near 1; no two scores that differ in a
    float32 sigmoid become equal.
    """
    clipped = np.clip(np.asarray(scores, dtype=np.float64), float(np.finfo(np.float32).tiny), 1 - 2.0**-24)
    return np.log(clipped) - np.log1p(-clipped)


def rounded(values: Reals) -> Values:
    """In float64, to DECIMALS decimals."""
    return np.asarray(np.round(values.astype(np.float64), DECIMALS), dtype=np.float64)


def calibrate(logits: Reals, temperatures: Values, biases: Values) -> Values:
    """Probabilities sigmoid(logit / T + b) of N x L logits, with T and b for each of L labels."""
    return sigmoid(logits.astype(np.float64) / temperatures + biases)


def reach(scores: Reals, thresholds: Values) -> Mask:
    """Whether N x L scores reach the thresholds of their labels; one at its threshold does."""
    return np.asarray(np.asarray(scores, dtype=np.float32) >= thresholds)


class Decisions(NamedTuple):
    """What is shown of N images and L labels: present == (probabilities >= thresholds), number for number.

    probabilities: N x L, calibrated, rounded to DECIMALS
    thresholds:    L, of the probabilities, rounded likewise
    present:       N x L
    """

    probabilities: Values
    thresholds: Values
    present: Mask

    def of_labels(self, columns: Sequence[int]) -> Decisions:
        probabilities = np.ascontiguousarray(self.probabilities[:, columns])
        return Decisions(probabilities, self.thresholds[columns], self.present[:, columns])


@dataclass(frozen=True)
class LabelRules:
    """The labels of a model, in the order of its outputs, and what was fitted for each of them.

    Raises InputError for values of wrong types, lengths and ranges: they may come from an untrusted file.

    thresholds:            of the scores, chosen on val, None means 0.5; see `probability_thresholds`
    threshold_support:     positives on val, or negatives where those are fewer, that each threshold was
                           chosen on; None where it is not known
    temperatures, biases:  of the calibration, fitted on val; None means 1 and 0
    probability_intervals: how well val determines each calibrated probability, see
                           `ProbabilityIntervals.to_rows`; None for a model that was not calibrated
    cooccurrence:          labels that often occur together with each label, see `find_cooccurring_labels`;
                           None where nothing is known
    guarantee:             what the thresholds promise; None where nothing
    parents:               for each label the indices of those that it implies; None where nothing is known.
                           Probabilities and thresholds respect them (`kmcl.evaluation.label_hierarchy`)
    """

    labels: tuple[str, ...]
    thresholds: tuple[float, ...] | None = None
    temperatures: tuple[float, ...] | None = None
    biases: tuple[float, ...] | None = None
    probability_intervals: IntervalRows | None = None
    cooccurrence: Cooccurrence | None = None
    threshold_support: tuple[int, ...] | None = None
    guarantee: Guarantee | None = None
    parents: ParentRows | None = None

    def __post_init__(self) -> None:
        self._check_labels()
        for name in ("thresholds", "temperatures", "biases"):
            check_numbers(name, getattr(self, name), len(self.labels), positive=name == "temperatures")
        check_numbers("threshold_support", self.threshold_support, len(self.labels))
        self._check_rows("probability_intervals", self._check_interval)
        self._check_rows("cooccurrence", self._check_cooccurring)
        if self.guarantee is not None:
            self.guarantee.check_labels(self.labels)
        if self.parents is not None:
            check_parents(self.parents, len(self.labels))

    @property
    def is_calibrated(self) -> bool:
        return self.temperatures is not None

    @property
    def score_thresholds(self) -> Values:
        """L thresholds of the scores, with the default where the model has none."""
        return self._filled(self.thresholds, DEFAULT_THRESHOLD)

    @property
    def exact_thresholds(self) -> Values:
        """L thresholds of the calibrated probabilities, not rounded, for programs that have only these."""
        given = self.score_thresholds
        exact = calibrate(logit(given), self.temperature_values, self.bias_values)
        own = np.where(given > 0, exact, 0.0)
        return own if self.parents is None else lower_parents(own, self.parents)

    @property
    def probability_thresholds(self) -> Values:
        """L thresholds of the calibrated probabilities, as they are shown."""
        # A threshold above 0 that rounds to 0 would accept every image.
        accepts_all = np.where(self.score_thresholds > 0, 1.0, 0.0)
        if self.parents is not None:
            accepts_all = lower_parents(accepts_all, self.parents)
        return np.maximum(rounded(self.exact_thresholds), STEP * accepts_all)

    @property
    def unsupported_thresholds(self) -> tuple[str, ...]:
        """Labels whose threshold was chosen on too few images of val; none where that is not known."""
        counts = self.threshold_support or (MIN_THRESHOLD_SUPPORT,) * len(self.labels)
        return tuple(
            label for label, count in zip(self.labels, counts, strict=True) if count < MIN_THRESHOLD_SUPPORT
        )

    @property
    def temperature_values(self) -> Values:
        """L temperatures, with the default where the model has none."""
        return self._filled(self.temperatures, DEFAULT_TEMPERATURE)

    @property
    def bias_values(self) -> Values:
        """L biases, with the default where the model has none."""
        return self._filled(self.biases, DEFAULT_BIAS)

    def calibrate(self, logits: Reals) -> Values:
        """Calibrated probabilities of N x L logits, in which no label is above one that it implies."""
        probabilities = calibrate(logits, self.temperature_values, self.bias_values)
        return probabilities if self.parents is None else raise_parents(probabilities, self.parents)

    def apply(self, scores: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Calibrate N x L scores, each label by itself, whatever labels imply, as `Temperatures.apply`."""
        return calibrate(logit(scores), self.temperature_values, self.bias_values).astype(np.float32)

    def score_of(self, probability: float) -> Values:
        """L scores whose calibrated probability is this one: the inverse of the calibration."""
        logits = (logit(np.full(len(self.labels), probability)) - self.bias_values) * self.temperature_values
        return np.where(probability > 0, sigmoid(logits), 0.0)

    def at(self, probability: float) -> Self:
        """With one threshold of all labels, a calibrated probability; nothing is promised then."""
        return replace(self, thresholds=tuple(self.score_of(probability).tolist()), guarantee=None)

    def present(self, scores: Reals) -> Mask:
        """N x L: which labels are predicted, from the scores before calibration. This alone decides it.

        A label is predicted where its score reaches its threshold. Where labels imply others, a label counts
        as likely as the likeliest that implies it, and its threshold as low as the lowest of these.
        """
        if self.parents is None:
            return reach(scores, self.score_thresholds)
        scores = np.asarray(scores, dtype=np.float32)
        raised = raise_parents(self._calibrated_logits(scores), self.parents)
        lowered = lower_parents(self._calibrated_logits(self.score_thresholds), self.parents)
        return np.asarray(raised >= lowered)

    def decide(self, scores: Reals, probabilities: Reals | None = None) -> Decisions:
        """Which labels are predicted, from N x L scores, with the numbers to show.

        probabilities: N x L, calibrated, as a model gave them beside the scores; else those of the scores
        """
        present = self.present(scores)
        if probabilities is None:
            probabilities = self.calibrate(logit(scores))
        thresholds = self.probability_thresholds
        return Decisions(self._shown(probabilities, thresholds, present), thresholds, present)

    def present_as_shown(self, probabilities: Reals) -> Mask:
        """N x L: what probabilities that `decide` gave, as a file has them, say of the decisions."""
        return np.asarray(rounded(probabilities) >= self.probability_thresholds)

    def _shown(self, probabilities: Reals, thresholds: Values, present: Mask) -> Values:
        """Rounded, but on the side of the threshold where the decision is, and not above an implied label."""
        shown = rounded(probabilities)
        below = rounded(thresholds - STEP)
        shown = np.where(present, np.maximum(shown, thresholds), np.minimum(shown, below))
        if self.parents is None:
            return shown
        of_present = raise_parents(np.where(present, shown, 0.0), self.parents)
        of_absent = lower_children(np.where(present, 1.0, shown), self.parents)
        return np.where(present, of_present, of_absent)

    def _calibrated_logits(self, scores: Reals) -> Values:
        """logit / T + b, infinite at 0 and 1, so that different scores stay different."""
        exact = np.clip(np.asarray(scores, dtype=np.float64), 0.0, 1.0)
        with np.errstate(divide="ignore"):
            logits = np.log(exact) - np.log1p(-exact)
        return np.asarray(logits / self.temperature_values + self.bias_values)

    def to_json(self) -> dict[str, Any]:
        values = asdict(self)
        if self.parents is None:
            del values["parents"]  # as versions wrote that knew none
        return values

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Rebuild what `to_json` gave after a round trip through JSON, which has lists for tuples."""
        if not isinstance(values, dict):
            raise InputError(f"label rules must be an object; got {values!r:.80}")
        known = {field.name for field in fields(cls)}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise InputError(f"label rules have no field {unknown[0]!r}")
        if "labels" not in values:
            raise InputError("label rules must have labels")
        guarantee = values.get("guarantee")
        return cls(
            **{name: _to_tuples(value) for name, value in values.items() if name != "guarantee"},
            guarantee=None if guarantee is None else Guarantee.from_json(guarantee),
        )

    def _filled(self, values: tuple[float, ...] | None, default: float) -> Values:
        return np.array((default,) * len(self.labels) if values is None else values, dtype=np.float64)

    def _check_labels(self) -> None:
        labels = self.labels
        if not isinstance(labels, tuple) or not 1 <= len(labels) <= MAX_LABELS:
            found = len(labels) if isinstance(labels, tuple) else repr(labels)
            raise InputError(f"labels must be 1 to {MAX_LABELS} names; got {found}")
        wrong = [label for label in labels if not isinstance(label, str) or not label]
        if wrong:
            raise InputError(f"labels must be different names; got {wrong[0]!r}")
        if len(set(labels)) != len(labels):
            twice = Counter(labels).most_common(1)[0][0]
            raise InputError(f"labels must be different names; got {twice!r} twice")

    def _check_rows(self, name: str, check: Callable[[tuple[Any, ...]], None]) -> None:
        rows = getattr(self, name)
        if rows is None:
            return
        if not isinstance(rows, tuple) or not all(isinstance(row, tuple) for row in rows):
            raise InputError(f"{name} must be a list with one list for each label; got {rows!r:.80}")
        if len(rows) != len(self.labels):
            raise InputError(f"{name} must be one row for each of {len(self.labels)} labels; got {len(rows)}")
        for row in rows:
            check(row)

    def _check_interval(self, row: tuple[Any, ...]) -> None:
        check_numbers("each row of probability_intervals", row, NUMBERS_PER_INTERVAL)
        if row[-1] <= 0:
            raise InputError(f"probability_intervals must end with a deviation above 0; got {row[-1]!r}")

    def _check_cooccurring(self, row: tuple[Any, ...]) -> None:
        for pair in row:
            is_pair = isinstance(pair, tuple) and len(pair) == 2 and type(pair[0]) is int
            if not is_pair or not 0 <= pair[0] < len(self.labels):
                raise InputError(f"cooccurrence must hold pairs (index of a label, share); got {pair!r}")
            if type(pair[1]) not in (int, float) or not 0 <= pair[1] <= 1:
                raise InputError(f"shares of cooccurrence must be between 0 and 1; got {pair[1]!r}")


def check_numbers(name: str, values: Sequence[float] | None, count: int, *, positive: bool = False) -> None:
    """Raise InputError for anything but None or `count` finite numbers, above 0 if `positive`."""
    if values is None:
        return
    if not isinstance(values, tuple) or len(values) != count:
        found = len(values) if isinstance(values, tuple) else repr(values)
        raise InputError(f"{name} must be {count} numbers; got {found}")
    for value in values:
        if type(value) not in (int, float) or not math.isfinite(value) or (positive and value <= 0):
            wanted = "finite and above 0" if positive else "finite"
            raise InputError(f"{name} must be {wanted}; got {value!r}")


def _to_tuples(value: object) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value
