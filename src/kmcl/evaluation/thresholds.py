"""One threshold per label, chosen on the validation split and saved with the model.

The best threshold of a label with three positives on val is mostly chance. Thresholds for F1 therefore stay
near one that is common to all labels, on the logit scale of the calibrated probabilities, where labels are
comparable:

    t_l = own_l, but at least common - d and at most common + d
    common = the median over labels of logit(F_l / 2)

own_l is the threshold with the highest F1 on val, F_l the highest F1 that the calibrated probabilities let
expect. Half of it is the best threshold where they are right, and it varies less than own_l.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.label_rules import MIN_THRESHOLD_SUPPORT, logit, sigmoid
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import OperatingPoints, Values, label_points
from kmcl.evaluation.temperature import Temperatures, fit_temperatures

Criterion = Literal["f1", "precision", "recall"]

MAX_DISTANCE = 0.875
"""d above: 17 % and 54 %, absurd as thresholds side by side, are 2 d apart; see docs/evaluation.md."""

_LEAST_PROBABILITY = 1e-3


@dataclass(frozen=True)
class LabelThresholds:
    """Thresholds of L labels and how they were chosen.

    values:      L thresholds in [0, 1], each exact in float32, so that a comparison gives the same answer
                 in float32 and float64.
    common:      the calibrated probability near which they stay; None where they do not.
    support:     L numbers of positives, or of negatives where those are fewer, they were chosen on.
    unsupported: labels whose support is below `MIN_THRESHOLD_SUPPORT`; their thresholds are mostly chance.
    unreached:   labels for which no threshold reaches the wanted precision; theirs gives the highest
                 possible.
    """

    labels: tuple[str, ...]
    values: Values
    criterion: Criterion
    wanted: float | None
    default: float
    common: float | None
    support: tuple[int, ...]
    unsupported: tuple[str, ...]
    unreached: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return to_json_object(self)

    @classmethod
    def from_json(cls, fields: JsonObject) -> Self:
        """Rebuild what `to_json` gave; InputError when something is missing, unknown or out of range."""
        try:
            names = ("labels", "support", "unsupported", "unreached")
            sequences = {name: tuple(fields[name]) for name in names}
            values = np.asarray(fields["values"], dtype=np.float64)
            thresholds = cls(**{**fields, **sequences, "values": values})
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"not a set of label thresholds: {error!r}") from error
        if values.shape != (len(thresholds.labels),) or not ((values >= 0) & (values <= 1)).all():
            raise InputError(
                f"thresholds must be {len(thresholds.labels)} values in [0, 1], got {values.tolist()}"
            )
        return thresholds


def choose_thresholds(
    predictions: Predictions,
    criterion: Criterion = "f1",
    wanted: float | None = None,
    default: float = 0.5,
    *,
    max_distance: float = MAX_DISTANCE,
    calibration: Temperatures | None = None,
) -> LabelThresholds:
    """Choose each label's threshold on these predictions, which must not be those it is then judged on.

    criterion "f1":        the highest F1, among equals the highest threshold; kept near the common one.
    criterion "precision": the lowest threshold, hence the highest recall, with at least the `wanted`
                           precision.
    criterion "recall":    the highest threshold, hence as a rule the highest precision, with at least the
                           `wanted` recall.
    default:               the threshold of labels without positives, where there is no common one.
    max_distance:          d above, for F1 only: a precision or recall that is wanted is not traded for
                           steadier thresholds. Infinity uses each label alone.
    calibration:           with biases, fitted on the same predictions; if not given it is fitted here.

    A label's own threshold is half-way between the lowest score it accepts and the next lower one (0 after
    the last), so that tiny numerical differences between machines do not change a decision.
    """
    _check_wishes(criterion, wanted, default, max_distance)
    values = np.full(predictions.num_labels, float(np.float32(default)))
    unreached = []
    for index, (label, points) in enumerate(zip(predictions.labels, label_points(predictions), strict=True)):
        if not len(points.scores) or points.true_positives[-1] == 0:
            continue
        chosen, reached = _choose_point(points, criterion, wanted or 0.0)
        values[index] = half_way_below(points.scores, chosen)
        if not reached:
            unreached.append(label)
    support = np.minimum(predictions.positive.sum(axis=0), predictions.negative.sum(axis=0))
    common = None
    if criterion == "f1" and math.isfinite(max_distance) and predictions.positive.any():
        calibration = calibration or fit_temperatures(predictions, with_bias=True)
        expected = half_expected_f1(calibration.calibrate(predictions))
        # A label of which nothing is known expects nothing.
        centre = float(np.median(logit(expected[predictions.evaluated.any(axis=0)])))
        common = float(sigmoid(np.array(centre)))
        # A label without positives has no threshold of its own.
        own = np.where(predictions.positive.any(axis=0), values, np.nan)
        values = _near(own, expected, centre, max_distance, calibration)
    return LabelThresholds(
        labels=predictions.labels,
        values=values,
        criterion=criterion,
        wanted=wanted,
        default=default,
        common=common,
        support=tuple(support.tolist()),
        unsupported=tuple(
            label
            for label, count in zip(predictions.labels, support, strict=True)
            if count < MIN_THRESHOLD_SUPPORT
        ),
        unreached=tuple(unreached),
    )


def half_expected_f1(calibrated: Predictions) -> Values:
    """Half of the highest F1 of each label that its calibrated probabilities let expect.

        F_l = max over k of 2 (p_1 + ... + p_k) / (k + p_1 + ... + p_n)

    p_1 >= ... >= p_n are the probabilities of the evaluated images. Where they are right, half of F_l is the
    threshold that reaches it.
    """
    found = np.full(calibrated.num_labels, _LEAST_PROBABILITY)
    for index, evaluated in enumerate(calibrated.evaluated.T):
        if evaluated.any():
            found[index] = half_of_best_f1(calibrated.scores[evaluated, index].astype(np.float64))
    result: Values = np.maximum(found, _LEAST_PROBABILITY)
    return result


def half_of_best_f1(probabilities: Values) -> float:
    """F_l of one label, from the probabilities of its images, at least one."""
    ranked = np.sort(probabilities)[::-1]
    sums = ranked.cumsum()
    return float((sums / (np.arange(1, len(ranked) + 1) + sums[-1])).max())


def _near(own: Values, expected: Values, centre: float, distance: float, calibration: Temperatures) -> Values:
    """Own thresholds, or the expected ones where own is NaN, within the distance, as float32 scores.

    A threshold that is near enough already is returned as it is, half-way between two scores of val.
    """
    calibrated = np.where(
        np.isnan(own), logit(expected), logit(own) / calibration.temperatures + calibration.biases
    )
    bounded = np.clip(calibrated, centre - distance, centre + distance)
    scores = sigmoid((bounded - calibration.biases) * calibration.temperatures)
    kept = ~np.isnan(own) & (bounded == calibrated)
    return np.where(kept, own, scores.astype(np.float32).astype(np.float64))


def _check_wishes(criterion: str, wanted: float | None, default: float, max_distance: float) -> None:
    if criterion not in get_args(Criterion):
        raise InputError(f"criterion must be one of {', '.join(get_args(Criterion))}, got {criterion!r}")
    if (criterion == "f1") != (wanted is None):
        need = "takes no" if criterion == "f1" else "needs a"
        raise InputError(f"criterion {criterion!r} {need} wanted value, got {wanted}")
    if wanted is not None and not 0 < wanted <= 1:
        raise InputError(f"wanted {criterion} must be in (0, 1], got {wanted}")
    if not 0 <= default <= 1:
        raise InputError(f"default threshold must be in [0, 1], got {default}")
    if not max_distance >= 0:
        raise InputError(f"max_distance must be at least 0, got {max_distance}")


def _choose_point(points: OperatingPoints, criterion: Criterion, wanted: float) -> tuple[int, bool]:
    """The index of the chosen operating point, and whether it reaches the wanted value."""
    positives = points.true_positives[-1]
    if criterion == "f1":
        return int(np.argmax(2 * points.true_positives / (points.predicted + positives))), True
    if criterion == "recall":
        return int(np.argmax(points.true_positives / positives >= wanted)), True
    precision = points.true_positives / points.predicted
    reaching = np.flatnonzero(precision >= wanted)
    if len(reaching):
        return int(reaching[-1]), True
    return int(np.flatnonzero(precision == precision.max())[-1]), False


def half_way_below(scores: npt.NDArray[np.float32], chosen: int) -> float:
    """A float32 threshold that accepts `scores[chosen]` and nothing lower."""
    lower = float(scores[chosen + 1]) if chosen + 1 < len(scores) else 0.0
    middle = np.float32((float(scores[chosen]) + lower) / 2)
    # Between neighbouring float32 numbers the middle rounds to one of them, possibly the lower.
    return float(middle) if middle > lower else float(scores[chosen])
