"""All metrics of one set of predictions, together: `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.decisions import (
    DecisionMetrics,
    Thresholds,
    check_thresholds,
    decide,
    decide_top_k,
    decision_metrics,
)
from kmcl.evaluation.frequency import FrequencyGroup, frequency_groups
from kmcl.evaluation.image_ranking import ImageRanking, image_ranking
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Mask, Predictions
from kmcl.evaluation.ranking import (
    Values,
    area_under_roc,
    average_precision,
    eleven_point_average_precision,
    label_points,
    mean_of_defined,
    per_label,
)

TOP_K = 3
"""How many labels of each image the top-k metrics take, if nothing else is said."""


@dataclass(frozen=True)
class LabelMetrics:
    """The metrics of one label; NaN where a metric is undefined for it."""

    label: str
    num_positives: int
    num_negatives: int
    average_precision: float
    eleven_point_average_precision: float
    auc: float
    threshold: float
    precision: float
    recall: float
    f1: float


@dataclass(frozen=True)
class Evaluation:
    """Every metric of one set of predictions; fractions in [0, 1], NaN where undefined.

    threshold:              the one threshold of all labels, or None when each label has its own; the value
    that was used is listed with each label in any case.
    at_threshold:           all scores that reach their threshold are predictions.
    top_k:                  the k highest scores of each image are its predictions.
    top_k_at_threshold:     those of the k that also reach their threshold.
    labels_without_positives: left out of every mean over labels.
    labels_without_negatives: left out of the mean AUC besides.
    frequency_counts_from:  "training" when `label_counts` was given, else "evaluated".
    """

    num_images: int
    num_pairs: int
    mean_average_precision: float
    mean_eleven_point_average_precision: float
    mean_auc: float
    threshold: float | None
    at_threshold: DecisionMetrics
    k: int
    top_k: DecisionMetrics
    top_k_at_threshold: DecisionMetrics
    image_ranking: ImageRanking
    frequency_groups: tuple[FrequencyGroup, ...]
    frequency_counts_from: str
    labels_without_positives: tuple[str, ...]
    labels_without_negatives: tuple[str, ...]
    labels: tuple[LabelMetrics, ...]

    def to_json(self) -> JsonObject:
        """The same tree in lists, dicts and numbers, null where a metric is undefined."""
        return to_json_object(self)


@dataclass(frozen=True)
class Ranking:
    """How the scores rank images and labels: what every evaluation of them has, whatever the thresholds."""

    predictions: Predictions
    average_precisions: Values
    eleven_point_average_precisions: Values
    areas: Values
    of_images: ImageRanking

    def evaluate(
        self,
        decisions: Mask,
        thresholds: npt.NDArray[np.float64],
        top_k: int = TOP_K,
        label_counts: npt.NDArray[np.integer] | None = None,
    ) -> Evaluation:
        """As `evaluate`, for N x L decisions that were made before.

        thresholds: L, to be listed with the labels, on whatever scale
        """
        predictions = self.predictions
        num_positives = predictions.positive.sum(axis=0)
        num_negatives = predictions.negative.sum(axis=0)
        at_threshold = decision_metrics(predictions, decisions)
        in_top_k = decide_top_k(predictions, top_k)
        counts = num_positives if label_counts is None else np.asarray(label_counts)
        columns: dict[str, npt.NDArray[Any]] = {
            "num_positives": num_positives,
            "num_negatives": num_negatives,
            "average_precision": self.average_precisions,
            "eleven_point_average_precision": self.eleven_point_average_precisions,
            "auc": self.areas,
            "threshold": thresholds,
            "precision": at_threshold.precision,
            "recall": at_threshold.recall,
            "f1": at_threshold.f1,
        }
        return Evaluation(
            num_images=len(predictions),
            num_pairs=int(predictions.evaluated.sum()),
            mean_average_precision=mean_of_defined(self.average_precisions),
            mean_eleven_point_average_precision=mean_of_defined(self.eleven_point_average_precisions),
            mean_auc=mean_of_defined(self.areas),
            threshold=None,
            at_threshold=at_threshold,
            k=top_k,
            top_k=decision_metrics(predictions, in_top_k),
            top_k_at_threshold=decision_metrics(predictions, in_top_k & decisions),
            image_ranking=self.of_images,
            frequency_groups=frequency_groups(predictions.labels, self.average_precisions, counts),
            frequency_counts_from="evaluated" if label_counts is None else "training",
            labels_without_positives=_named(predictions.labels, num_positives == 0),
            labels_without_negatives=_named(predictions.labels, num_negatives == 0),
            labels=tuple(
                LabelMetrics(label, **{name: column[index].item() for name, column in columns.items()})
                for index, label in enumerate(predictions.labels)
            ),
        )

    def evaluate_at(
        self,
        thresholds: Thresholds,
        top_k: int = TOP_K,
        label_counts: npt.NDArray[np.integer] | None = None,
    ) -> Evaluation:
        """As `evaluate`."""
        scores = self.predictions.scores
        values = np.broadcast_to(check_thresholds(thresholds, scores.shape[1]), (scores.shape[1],))
        found = self.evaluate(decide(scores, thresholds), values, top_k, label_counts)
        return replace(found, threshold=float(values[0])) if np.ndim(thresholds) == 0 else found


def rank(predictions: Predictions) -> Ranking:
    """Rank the images of each label, and the labels of each image, once for all evaluations."""
    points = label_points(predictions)
    return Ranking(
        predictions,
        per_label(average_precision, points),
        per_label(eleven_point_average_precision, points),
        per_label(area_under_roc, points),
        image_ranking(predictions),
    )


def evaluate(
    predictions: Predictions,
    thresholds: Thresholds = 0.5,
    top_k: int = TOP_K,
    label_counts: npt.NDArray[np.integer] | None = None,
) -> Evaluation:
    """Compute every metric over the evaluated pairs.

    thresholds:   one value for all labels or L values, in [0, 1].
    top_k:        how many labels of each image the top-k metrics take.
    label_counts: L numbers of positives that make a label rare, medium or frequent; usually of the training
    set. Without them the evaluated positives are counted.
    """
    return rank(predictions).evaluate_at(thresholds, top_k, label_counts)


def _named(labels: tuple[str, ...], chosen: npt.NDArray[np.bool_]) -> tuple[str, ...]:
    return tuple(label for label, is_chosen in zip(labels, chosen, strict=True) if is_chosen)
