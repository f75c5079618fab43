"""From scores to binary decisions, and their quality: CP, CR, CF1, OP, OR, OF1.

Choices made here, because published code differs on them:

- A score *at* its threshold is a positive prediction.
- C (per label): precision and recall are averaged over the labels that have a positive; labels without one
  are left out of both means. A label with positives that is never predicted has precision 0 and stays in
  the mean, as in the evaluation code of ML-GCN and of those derived from it; leaving it out would reward a
  model for never predicting a label. Such labels are listed.
- CF1 is the harmonic mean of CP and CR, not the mean of the labels' F1; OF1 that of OP and OR.
- O (overall): counts are summed over all labels, those without positives included (a prediction there is a
false positive). When nothing is predicted OP is 0. ML-GCN's code adds 1 to the denominator of OP for every
  label that is never predicted; this code does not.
- Top k: an image's k highest evaluated scores are its predictions, whatever their values; with
  `thresholds`, only those of the k that reach theirs (what the code of ML-GCN does). Among equal scores the
  first label wins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, reach
from kmcl.evaluation.predictions import Mask, Predictions
from kmcl.evaluation.ranking import Values, mean_of_defined

Thresholds = float | npt.NDArray[np.floating]

DECISIONS = ("CP", "CR", "CF1", "OP", "OR", "OF1")
"""The figures of `DecisionMetrics`, as tables show them."""


@dataclass(frozen=True)
class DecisionMetrics:
    """Quality of a set of decisions; fractions in [0, 1], NaN where undefined.

    precision, recall, f1: one value per label; NaN for a label without positives, whose predictions can only
    be wrong and whose recall is undefined.
    never_predicted:       labels with positives that are never predicted; they count as 0 in CP.
    """

    CP: float
    CR: float
    CF1: float
    OP: float
    OR: float
    OF1: float
    precision: Values
    recall: Values
    f1: Values
    never_predicted: tuple[str, ...]


def decide(scores: npt.NDArray[np.float32], thresholds: Thresholds) -> Mask:
    """N x L decisions: a label is predicted where its score reaches its threshold.

    thresholds: one value for all labels or L values, each in [0, 1].
    """
    return reach(scores, check_thresholds(thresholds, scores.shape[1]))


def rules_at(labels: tuple[str, ...], thresholds: Thresholds | LabelRules) -> LabelRules:
    """Rules that decide by thresholds of the scores alone; rules as they are."""
    if isinstance(thresholds, LabelRules):
        return thresholds
    values = np.broadcast_to(check_thresholds(thresholds, len(labels)), (len(labels),))
    return LabelRules(labels, thresholds=tuple(values.tolist()))


def decide_top_k(predictions: Predictions, k: int, thresholds: Thresholds | None = None) -> Mask:
    """N x L decisions: the k highest evaluated scores of each image, above their thresholds if given.

    An image with fewer than k evaluated labels gets fewer predictions.
    """
    if k < 1:
        raise InputError(f"k must be at least 1, got {k}")
    evaluated = predictions.evaluated
    ranked = np.argsort(np.where(evaluated, -predictions.scores, np.inf), axis=1, kind="stable")
    decisions = np.zeros_like(evaluated)
    np.put_along_axis(decisions, ranked[:, :k], True, axis=1)
    decisions &= evaluated
    return decisions if thresholds is None else decisions & decide(predictions.scores, thresholds)


def decision_metrics(predictions: Predictions, decisions: Mask) -> DecisionMetrics:
    """Compare decisions with the targets of the evaluated pairs."""
    positives = predictions.positive.sum(axis=0, dtype=np.float64)
    predicted = (decisions & predictions.evaluated).sum(axis=0, dtype=np.float64)
    correct = (decisions & predictions.positive).sum(axis=0, dtype=np.float64)

    present = positives > 0
    precision = np.where(present, correct / np.maximum(predicted, 1), np.nan)
    recall = np.where(present, correct / np.maximum(positives, 1), np.nan)
    f1 = np.where(present, 2 * correct / np.maximum(positives + predicted, 1), np.nan)
    per_label_precision, per_label_recall = mean_of_defined(precision), mean_of_defined(recall)
    if present.any():
        overall_precision = float(correct.sum() / max(predicted.sum(), 1))
        overall_recall = float(correct.sum() / positives.sum())
    else:
        overall_precision = overall_recall = float("nan")
    return DecisionMetrics(
        CP=per_label_precision,
        CR=per_label_recall,
        CF1=harmonic_mean(per_label_precision, per_label_recall),
        OP=overall_precision,
        OR=overall_recall,
        OF1=harmonic_mean(overall_precision, overall_recall),
        precision=precision,
        recall=recall,
        f1=f1,
        never_predicted=tuple(
            label
            for label, silent in zip(predictions.labels, present & (predicted == 0), strict=True)
            if silent
        ),
    )


def check_thresholds(thresholds: Thresholds, num_labels: int) -> Values:
    """The thresholds as an array of 1 or L values; InputError when their number or range is wrong."""
    values = np.atleast_1d(np.asarray(thresholds, dtype=np.float64))
    if values.shape not in {(1,), (num_labels,)}:
        raise InputError(f"thresholds must be one value or {num_labels}, got shape {values.shape}")
    if not ((values >= 0) & (values <= 1)).all():
        wrong = values[~((values >= 0) & (values <= 1))][0]
        raise InputError(f"thresholds must be in [0, 1], got {wrong}")
    return values


def harmonic_mean(first: float, second: float) -> float:
    """2ab / (a + b), and 0 where both are 0."""
    return 0.0 if first == 0 and second == 0 else 2 * first * second / (first + second)
