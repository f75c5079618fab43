"""One threshold per label, chosen on the validation split and saved with the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import OperatingPoints, Values, label_points

Criterion = Literal["f1", "precision", "recall"]


@dataclass(frozen=True)
class LabelThresholds:
    """Thresholds of L labels and how they were chosen.

    values:     L thresholds in [0, 1], each exact in float32, so that a comparison gives the same answer
                in float32 and float64.
    defaulted:  labels that had no positives to choose on and got `default`.
    unreached:  labels for which no threshold reaches the wanted precision; theirs gives the highest possible.
    """

    labels: tuple[str, ...]
    values: Values
    criterion: Criterion
    wanted: float | None
    default: float
    defaulted: tuple[str, ...]
    unreached: tuple[str, ...]

    def to_json(self) -> JsonObject:
        return to_json_object(self)

    @classmethod
    def from_json(cls, fields: JsonObject) -> Self:
        """Rebuild what `to_json` gave; InputError when something is missing, unknown or out of range."""
        try:
            sequences = {name: tuple(fields[name]) for name in ("labels", "defaulted", "unreached")}
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
) -> LabelThresholds:
    """Choose each label's threshold on these predictions, which must not be those it is then judged on.

    criterion "f1":        the highest F1; among equals the highest threshold.
    criterion "precision": the lowest threshold, hence the highest recall, with at least the `wanted`
                           precision.
    criterion "recall":    the highest threshold, hence as a rule the highest precision, with at least the
                           `wanted` recall.
    default:               the threshold of labels without positives.

    A threshold is half-way between the lowest score it accepts and the next lower one (0 after the last), so
    that tiny numerical differences between machines do not change a decision.
    """
    if criterion not in get_args(Criterion):
        raise InputError(f"criterion must be one of {', '.join(get_args(Criterion))}, got {criterion!r}")
    if (criterion == "f1") != (wanted is None):
        need = "takes no" if criterion == "f1" else "needs a"
        raise InputError(f"criterion {criterion!r} {need} wanted value, got {wanted}")
    if wanted is not None and not 0 < wanted <= 1:
        raise InputError(f"wanted {criterion} must be in (0, 1], got {wanted}")
    if not 0 <= default <= 1:
        raise InputError(f"default threshold must be in [0, 1], got {default}")

    values = np.full(predictions.num_labels, float(np.float32(default)))
    defaulted, unreached = [], []
    for index, (label, points) in enumerate(zip(predictions.labels, label_points(predictions), strict=True)):
        if not len(points.scores) or points.true_positives[-1] == 0:
            defaulted.append(label)
            continue
        chosen, reached = _choose_point(points, criterion, wanted or 0.0)
        values[index] = _below(points.scores, chosen)
        if not reached:
            unreached.append(label)
    return LabelThresholds(
        predictions.labels, values, criterion, wanted, default, tuple(defaulted), tuple(unreached)
    )


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
