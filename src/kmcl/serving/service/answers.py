"""From scores to the JSON of a response.

Plain dictionaries in the shape of `schemas`, not its models: validating every number of every label again
would take longer than scoring a small image. The tests validate them against the schemas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kmcl.evaluation.label_rules import LabelRules, rounded
from kmcl.evaluation.unfamiliarity import is_unfamiliar
from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.label_context import LabelContext
from kmcl.serving.service import schemas
from kmcl.serving.service.saliency import Maps

JsonObject = dict[str, Any]


def describe_images(
    names: Sequence[str],
    scores: BatchScores,
    context: LabelContext,
    maps: Maps | None,
    cutoff: float | None = None,
) -> JsonObject:
    """The response to a request; see `schemas.Predictions`.

    cutoff: the probability of an error above which a decision is left to a person; None: none is
    """
    shown = context.shown(scores)
    columns: dict[str, Any] = {
        name: None if (column := getattr(shown, name)) is None else column.tolist()
        for name in ("probability", "low", "high", "present", "score", "sigma")
    }
    columns["unsure"] = None if cutoff is None else shown.unsure(cutoff).tolist()
    thresholds = shown.thresholds.tolist()
    of_images = describe_unfamiliarity(scores)
    images = []
    for row, name in enumerate(names):
        labels = []
        for k, label in enumerate(context.labels):
            values = {key: None if column is None else column[row][k] for key, column in columns.items()}
            heat = None if maps is None else maps[row].get(k)
            labels.append(
                {
                    "label": label,
                    **values,
                    "threshold": thresholds[k],
                    "cooccurring_labels": describe_cooccurring(context, k) if values["present"] else [],
                    "saliency": None if heat is None else _describe_heat(heat),
                }
            )
        images.append({"name": name, "labels": labels, **of_images[row]})
    return {"images": images}


def describe_unfamiliarity(scores: BatchScores) -> list[JsonObject]:
    """For each image how unlike the training images it is, and whether it counts as unlike them."""
    if scores.unfamiliarity is None:
        return [{"unfamiliarity": None, "unfamiliar": None}] * len(scores.score)
    shown = rounded(scores.unfamiliarity)
    return [
        {"unfamiliarity": value, "unfamiliar": flag}
        for value, flag in zip(shown.tolist(), is_unfamiliar(shown).tolist(), strict=True)
    ]


def describe_cooccurring(context: LabelContext, label: int) -> list[JsonObject]:
    return [{"label": context.labels[other], "share": share} for other, share in context.cooccurrence[label]]


def describe_guarantee(rules: LabelRules) -> schemas.Guarantee | None:
    """What the model's thresholds promise, for its description."""
    found = rules.guarantee
    if found is None:
        return None
    return schemas.Guarantee(
        kind=found.kind,
        level=found.level,
        confidence=found.confidence,
        not_given=list(found.not_given),
        sentence=found.in_words(rules.labels),
    )


def _describe_heat(heat: Any) -> JsonObject:
    return {"rows": heat.shape[0], "columns": heat.shape[1], "values": np.round(heat, 3).tolist()}
