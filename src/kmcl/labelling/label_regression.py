"""Logistic regression of labels on scores and on evidence that all labels share, and beliefs in given labels.

With p the probability of a label without regard to its given value y, β the share of present labels that is
forgotten and α the share of absent ones that is given by mistake, the label is there with probability

    p (1 - β) / (p (1 - β) + (1 - p) α)   if y = 1,          p β / (p β + (1 - p) (1 - α))   if y = 0
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.label_rules import sigmoid
from kmcl.evaluation.ranking import Values

SHARE_FORGOTTEN = 0.05
"""β. It cannot be estimated where images say little about labels: a wrong label looks like a hard image."""
AS_EVIDENCE = (0.5, 0.5)
FOR_RANKING = (0.25, 1.0)
"""Exponent and bound of `shares_of_mistakes`: where labels speak for others, and where they are ranked."""
BIAS_PENALTY, SLOPE_PENALTY = 1e-3, 0.05
ITERATIONS, TOLERANCE = 40, 1e-4

Targets = npt.NDArray[np.int8]


@dataclass(frozen=True)
class LabelRegression:
    """η_k = slope_k s_k + bias_k + Σ_f evidence_f weight_fk.

    slopes, biases: L numbers, for the scores s of the labels
    weights:        F x L, for evidence that all labels share
    """

    slopes: Values
    biases: Values
    weights: Values

    def probabilities(self, scores: Values, evidence: Values) -> Values:
        """p, N x L."""
        logits = self.slopes * scores + self.biases + evidence @ self.weights
        return np.asarray(sigmoid(logits), dtype=np.float64)


def fit_label_regression(
    scores: Values,
    evidence: Values,
    allowed: npt.NDArray[np.bool_],
    targets: Targets,
    *,
    penalty: float = 1.0,
) -> LabelRegression:
    """Maximum likelihood, penalised by `penalty` Σ weight² / 2, label by label.

    scores:   N x L
    evidence: N x F
    allowed:  F x L, which weights may differ from 0
    targets:  N x L; 1, 0, or -1 for unknown, which counts for nothing
    """
    num_labels = scores.shape[1]
    slopes, biases = np.zeros(num_labels), np.zeros(num_labels)
    weights = np.zeros((evidence.shape[1], num_labels))
    scale = scores.std(axis=0) + 1e-12
    for label in range(num_labels):
        known, used = targets[:, label] >= 0, allowed[:, label]
        columns = (np.ones(known.sum()), scores[known, label] / scale[label], evidence[known][:, used])
        penalties = np.r_[BIAS_PENALTY, SLOPE_PENALTY, np.full(used.sum(), penalty)]
        found = _fit_label(np.column_stack(columns), targets[known, label] == 1, penalties)
        biases[label], slopes[label] = found[0], found[1] / scale[label]
        weights[used, label] = found[2:]
    return LabelRegression(slopes, biases, weights)


def _fit_label(inputs: Values, positive: npt.NDArray[np.bool_], penalties: Values) -> Values:
    """The coefficients of one label by Newton's method, for inputs N x P whose first column is 1."""
    rate = (positive.sum() + 0.5) / (len(positive) + 1)
    start = np.zeros(inputs.shape[1])
    start[:2] = np.log(rate / (1 - rate)), 1.0
    values: Values = start
    loss = np.inf
    step: Values = np.zeros(len(start))
    for _ in range(ITERATIONS):
        candidate = values + step
        p = np.asarray(sigmoid(inputs @ candidate))
        given = np.clip(np.where(positive, p, 1 - p), 1e-12, 1)
        away = candidate - start
        reached = -np.log(given).sum() + 0.5 * (penalties * away**2).sum()
        if reached > loss:
            step = step / 2
            continue
        if loss - reached < TOLERANCE:
            return candidate
        values, loss = candidate, reached
        gradient = inputs.T @ (p - positive) + penalties * away
        curvature = (inputs * (p * (1 - p))[:, None]).T @ inputs
        curvature[np.diag_indices_from(curvature)] += penalties
        step = np.asarray(-np.linalg.solve(curvature, gradient), dtype=np.float64)
    return values


def shares_of_mistakes(targets: Targets, exponent_and_bound: tuple[float, float]) -> Values:
    """α of each label, L.

        α = min(β oᵉ, b o),    o = π / (1 - π) with π the share of images that have the label

    With e = 0, mistakes as likely as omissions would exceed the given values of a rare label, and each of
    these that is hard to see would count as wrong. With e = 1, as many mistakes as omissions, those with rare
    labels would be hidden. The bound: not more than b of the given values of a label are mistakes.
    """
    exponent, bound = exponent_and_bound
    known = (targets >= 0).sum(axis=0)
    rates = ((targets == 1).sum(axis=0) + 0.5) / (known + 1)
    odds = rates / (1 - rates)
    shares: Values = np.minimum(SHARE_FORGOTTEN * odds**exponent, bound * odds)
    return shares


def believed(
    probabilities: Values, targets: Targets, mistakes: Values, forgotten: float = SHARE_FORGOTTEN
) -> Values:
    """The probability of each label once its given value is known, N x L; p where it is unknown.

    mistakes, forgotten: α, of each label, and β
    """
    p = np.clip(probabilities, 1e-9, 1 - 1e-9)
    if_given = p * (1 - forgotten) / (p * (1 - forgotten) + (1 - p) * mistakes)
    if_not = p * forgotten / (p * forgotten + (1 - p) * (1 - mistakes))
    return np.where(targets == 1, if_given, np.where(targets == 0, if_not, p))
