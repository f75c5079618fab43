"""From scores to the JSON of a response.

Plain dictionaries in the shape of `schemas`, not its models: validating every number of every label again
would take longer than scoring a small image. The tests validate them against the schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.service.label_context import LabelContext
from kmcl.serving.service.saliency import Maps

JsonObject = dict[str, Any]


def describe_images(
    names: Sequence[str], scores: BatchScores, context: LabelContext, maps: Maps | None
) -> JsonObject:
    """The response to a request; see `schemas.Predictions`."""
    present = context.rules.decide(scores.score)
    columns: dict[str, Any] = {
        "probability": _numbers(scores.probability),
        "score": _numbers(scores.score),
        "sigma": None if scores.sigma is None else _numbers(scores.sigma),
        "low": None,
        "high": None,
    }
    if context.intervals is not None:
        interval = context.intervals.interval(scores.score, scores.probability, scores.sigma)
        columns["low"], columns["high"] = _numbers(interval.low), _numbers(interval.high)
    thresholds = _numbers(context.thresholds)
    probability_thresholds = _numbers(context.probability_thresholds)
    images = []
    for row, name in enumerate(names):
        labels = []
        for k, label in enumerate(context.labels):
            values = {key: None if column is None else column[row][k] for key, column in columns.items()}
            is_present = bool(present[row, k])
            heat = None if maps is None else maps[row].get(k)
            labels.append(
                {
                    "label": label,
                    **values,
                    "present": is_present,
                    "threshold": thresholds[k],
                    "probability_threshold": probability_thresholds[k],
                    "cooccurring_labels": describe_cooccurring(context, k) if is_present else [],
                    "saliency": None if heat is None else _describe_heat(heat),
                }
            )
        images.append({"name": name, "labels": labels})
    return {"images": images}


def describe_cooccurring(context: LabelContext, label: int) -> list[JsonObject]:
    return [{"label": context.labels[other], "share": share} for other, share in context.cooccurrence[label]]


def _describe_heat(heat: Any) -> JsonObject:
    return {"rows": heat.shape[0], "columns": heat.shape[1], "values": np.round(heat, 3).tolist()}


def _numbers(values: Any) -> Any:
    """Six decimals: the precision of float32, in half the bytes."""
    return np.round(np.asarray(values, dtype=np.float64), 6).tolist()
