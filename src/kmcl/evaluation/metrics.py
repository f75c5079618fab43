"""All metrics of one set of predictions, together: `evaluate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.decisions import (
    DecisionMetrics,
    Thresholds,
    check_thresholds,
    decide,
    decide_top_k,
    decision_metrics,
)
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


# Positive pairs compared with all labels at once: 2^22 comparisons keep the temporaries near 10 MB.
_COMPARISONS_AT_ONCE = 2**22


class ImageRanking(NamedTuple):
    """Ranking quality averaged over images.

    ranking_loss:                    share of (present, absent) label pairs of an image in the wrong order,
                                     equal scores counting as wrong; lower is better.
    coverage:                        how many labels must be taken from the top of an image's ranking to
    include all present ones, at best the number present; lower is better. label_ranking_average_precision:
    for each present label, the share of present ones among the labels
                                     that score at least as high; higher is better.
    num_images_with_both:            images with a present and an absent label, over which the ranking loss is
    averaged. num_images_with_positives:       images with a present label, over which the other two are
    averaged.
    """

    ranking_loss: float
    coverage: float
    label_ranking_average_precision: float
    num_images_with_both: int
    num_images_with_positives: int


class _Places(NamedTuple):
    """For each positive pair: how many labels of its image score at least as high."""

    images: npt.NDArray[np.int64]
    positives_above: Values
    negatives_above: Values


def image_ranking(predictions: Predictions) -> ImageRanking:
    """Compute the three over all evaluated pairs; a metric that is defined for no image is NaN."""
    places = _places_of_positives(predictions)
    num_images = len(predictions)
    num_positives = predictions.positive.sum(axis=1)
    num_negatives = predictions.negative.sum(axis=1)
    with_positives = num_positives > 0
    with_both = with_positives & (num_negatives > 0)

    wrong_pairs = np.bincount(places.images, weights=places.negatives_above, minlength=num_images)
    ranks = places.positives_above + places.negatives_above
    precision_sums = np.bincount(places.images, weights=places.positives_above / ranks, minlength=num_images)
    coverage = np.zeros(num_images)
    np.maximum.at(coverage, places.images, ranks)

    pairs = num_positives[with_both] * num_negatives[with_both]
    return ImageRanking(
        ranking_loss=_mean(wrong_pairs[with_both] / pairs),
        coverage=_mean(coverage[with_positives]),
        label_ranking_average_precision=_mean(precision_sums[with_positives] / num_positives[with_positives]),
        num_images_with_both=int(with_both.sum()),
        num_images_with_positives=int(with_positives.sum()),
    )


def _places_of_positives(predictions: Predictions) -> _Places:
    """Compare each positive pair with its image's labels: P x L, P far below N x L on sparse targets."""
    positive, negative = predictions.positive, predictions.negative
    images, labels = np.nonzero(positive)
    positives_above = np.empty(len(images))
    negatives_above = np.empty(len(images))
    step = max(1, _COMPARISONS_AT_ONCE // predictions.num_labels)
    for start in range(0, len(images), step):
        rows, columns = images[start : start + step], labels[start : start + step]
        above = predictions.scores[rows] >= predictions.scores[rows, columns, None]
        positives_above[start : start + step] = (above & positive[rows]).sum(axis=1)
        negatives_above[start : start + step] = (above & negative[rows]).sum(axis=1)
    return _Places(images, positives_above, negatives_above)


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else float("nan")


GROUPS = ("rare", "medium", "frequent")


@dataclass(frozen=True)
class FrequencyGroup:
    """One third of the labels by their number of positives.

    mean_average_precision is over those of its labels that have one; NaN when none has.
    """

    name: str
    labels: tuple[str, ...]
    lowest_count: int | None
    highest_count: int | None
    mean_average_precision: float


def frequency_groups(
    labels: tuple[str, ...], average_precisions: Values, counts: npt.NDArray[np.integer]
) -> tuple[FrequencyGroup, ...]:
    """Split the labels into terciles by count and average the precision of each.

    counts: L numbers of positives, usually of the training set.

    A label's rank is the share of labels with a lower count, plus half the share with the same count
    (itself included): below 1/3 it is rare, below 2/3 medium, else frequent. Labels with equal counts are
    therefore in the same group, and a group may be empty: with equal counts everywhere all are medium.
    """
    if counts.shape != (len(labels),) or (counts < 0).any():
        raise InputError(f"label counts must be {len(labels)} numbers of at least 0, got {counts.tolist()}")
    ordered = np.sort(counts)
    lower = np.searchsorted(ordered, counts, side="left")
    lower_or_equal = np.searchsorted(ordered, counts, side="right")
    # rank = (lower + lower_or_equal) / 2L, below 1, compared with 1/3 and 2/3 in integers.
    group_of_label = 3 * (lower + lower_or_equal) // (2 * len(labels))
    return tuple(
        _group(name, labels, average_precisions, counts, np.flatnonzero(group_of_label == group))
        for group, name in enumerate(GROUPS)
    )


def _group(
    name: str,
    labels: tuple[str, ...],
    average_precisions: Values,
    counts: npt.NDArray[np.integer],
    members: npt.NDArray[np.int64],
) -> FrequencyGroup:
    return FrequencyGroup(
        name=name,
        labels=tuple(labels[member] for member in members),
        lowest_count=int(counts[members].min()) if len(members) else None,
        highest_count=int(counts[members].max()) if len(members) else None,
        mean_average_precision=mean_of_defined(average_precisions[members]),
    )
