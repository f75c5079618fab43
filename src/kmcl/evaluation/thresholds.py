"""One threshold per label, chosen on the validation split and saved with the model.

The best threshold of a label with three positives on val is mostly chance. Thresholds for F1 therefore shrink
towards one that is common to all labels, on the logit scale of the calibrated probabilities, where labels are
comparable:

    t_l = (n_l own_l + k common) / (n_l + k)

n_l is the label's support, its positives or negatives on val, whichever are fewer, and k the prior count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import OperatingPoints, Values, label_points
from kmcl.evaluation.temperature import Temperatures, fit_temperatures
from kmcl.models.label_rules import MIN_THRESHOLD_SUPPORT, logit, sigmoid

Criterion = Literal["f1", "precision", "recall"]

PRIOR_COUNT = 5.0
"""Support at which a label's own threshold and the common one have equal weight; see docs/evaluation.md."""

_LEAST_PROBABILITY = 1e-3


@dataclass(frozen=True)
class LabelThresholds:
    """Thresholds of L labels and how they were chosen.

    values:      L thresholds in [0, 1], each exact in float32, so that a comparison gives the same answer
                 in float32 and float64.
    common:      the calibrated probability towards which they shrink; None where they do not.
    support:     L numbers of positives, or of negatives where those are fewer, they were chosen on.
    unsupported: labels whose support is below `MIN_THRESHOLD_SUPPORT`; for F1 their thresholds are mostly the
                 common one.
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
    prior_count: float = PRIOR_COUNT,
    calibration: Temperatures | None = None,
) -> LabelThresholds:
    """Choose each label's threshold on these predictions, which must not be those it is then judged on.

    criterion "f1":        the highest F1, among equals the highest threshold; shrunk towards the common one.
    criterion "precision": the lowest threshold, hence the highest recall, with at least the `wanted`
                           precision.
    criterion "recall":    the highest threshold, hence as a rule the highest precision, with at least the
                           `wanted` recall.
    default:               the threshold of labels without positives, where there is no common one.
    prior_count:           k above, for F1 only: a precision or recall that is wanted is not traded for
                           steadier thresholds. 0 uses each label alone.
    calibration:           with biases, fitted on the same predictions; if not given it is fitted here.

    A label's own threshold is half-way between the lowest score it accepts and the next lower one (0 after
    the last), so that tiny numerical differences between machines do not change a decision.
    """
    _check_wishes(criterion, wanted, default, prior_count)
    values = np.full(predictions.num_labels, float(np.float32(default)))
    unreached = []
    for index, (label, points) in enumerate(zip(predictions.labels, label_points(predictions), strict=True)):
        if not len(points.scores) or points.true_positives[-1] == 0:
            continue
        chosen, reached = _choose_point(points, criterion, wanted or 0.0)
        values[index] = _below(points.scores, chosen)
        if not reached:
            unreached.append(label)
    support = np.minimum(predictions.positive.sum(axis=0), predictions.negative.sum(axis=0))
    common = None
    if criterion == "f1" and prior_count > 0 and predictions.positive.any():
        calibration = calibration or fit_temperatures(predictions, with_bias=True)
        common = common_threshold(calibration.calibrate(predictions))
        values = _shrink(values, common, support / (support + prior_count), calibration)
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


def common_threshold(calibrated: Predictions) -> float:
    """The one threshold of all labels, in whole percents, with the highest mean F1 of the labels.

    Among equals the middle one.

    calibrated: predictions whose scores are calibrated probabilities, with at least one positive.
    """
    percents = np.clip(100 * calibrated.scores.astype(np.float64), 0, 99).astype(np.int64)
    positives, predicted, correct = [], [], []
    for percent, evaluated, positive in zip(
        percents.T, calibrated.evaluated.T, calibrated.positive.T, strict=True
    ):
        if positive.any():
            at_least = [
                np.bincount(percent[rows], minlength=100)[::-1].cumsum()[::-1]
                for rows in (evaluated, positive)
            ]
            predicted.append(at_least[0])
            correct.append(at_least[1])
            positives.append(positive.sum())
    sums = np.array(predicted) + np.array(positives)[:, None]
    quality = (2 * np.array(correct) / sums).mean(axis=0)
    # 0 would predict every label everywhere.
    best = np.flatnonzero(quality[1:] >= quality[1:].max() - 1e-12) + 1
    return float(best[len(best) // 2]) / 100


def _shrink(own: Values, common: float, weights: Values, calibration: Temperatures) -> Values:
    """Weighted means of own and common thresholds on the calibrated logit scale, as float32 scores."""
    # A threshold at a saturated score has an extreme logit, which no weight below 1 would temper.
    bound = logit(np.array([1 - _LEAST_PROBABILITY]))
    calibrated = np.clip(logit(own) / calibration.temperatures + calibration.biases, -bound, bound)
    mixed = weights * calibrated + (1 - weights) * logit(np.array([common]))
    scores = sigmoid((mixed - calibration.biases) * calibration.temperatures)
    return scores.astype(np.float32).astype(np.float64)


def _check_wishes(criterion: str, wanted: float | None, default: float, prior_count: float) -> None:
    if criterion not in get_args(Criterion):
        raise InputError(f"criterion must be one of {', '.join(get_args(Criterion))}, got {criterion!r}")
    if (criterion == "f1") != (wanted is None):
        need = "takes no" if criterion == "f1" else "needs a"
        raise InputError(f"criterion {criterion!r} {need} wanted value, got {wanted}")
    if wanted is not None and not 0 < wanted <= 1:
        raise InputError(f"wanted {criterion} must be in (0, 1], got {wanted}")
    if not 0 <= default <= 1:
        raise InputError(f"default threshold must be in [0, 1], got {default}")
    if not prior_count >= 0:
        raise InputError(f"prior_count must be at least 0, got {prior_count}")


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


def _below(scores: npt.NDArray[np.float32], chosen: int) -> float:
    """A float32 threshold that accepts `scores[chosen]` and nothing lower."""
    lower = float(scores[chosen + 1]) if chosen + 1 < len(scores) else 0.0
    middle = np.float32((float(scores[chosen]) + lower) / 2)
    # Between neighbouring float32 numbers the middle rounds to one of them, possibly the lower.
    return float(middle) if middle > lower else float(scores[chosen])
