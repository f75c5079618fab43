"""Logistic regression on labels a few of which are wrong.

With t the true label, y the given one, and ε the share of given values that is wrong, whatever they are,

    P(t = 1) = p = σ(η)                  P(y = 1) = ε + (1 - 2ε) p

so that a label that contradicts a clear image costs -log ε and no more: it does not bend the fit. Given y,
the label is there with probability

    p (1 - ε) / (p (1 - ε) + (1 - p) ε)   if y = 1,          p ε / (p ε + (1 - p) (1 - ε))   if y = 0
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.ranking import Values
from kmcl.models.label_rules import sigmoid

SHARE_WRONG = 0.01
"""ε. It cannot be estimated where images say little about labels: a wrong label looks like a hard image."""
SLOPE_PENALTY = 0.05
ITERATIONS = 100

Targets = npt.NDArray[np.int8]


@dataclass(frozen=True)
class NoisyLogistic:
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


def fit_noisy_logistic(
    scores: Values,
    evidence: Values,
    allowed: npt.NDArray[np.bool_],
    targets: Targets,
    *,
    penalty: float = 1.0,
    share_wrong: float = SHARE_WRONG,
    start: NoisyLogistic | None = None,
) -> NoisyLogistic:
    """Maximum likelihood, penalised by `penalty` Σ weight² / 2.

    scores:   N x L
    evidence: N x F
    allowed:  F x L, which weights may differ from 0
    targets:  N x L; 1, 0, or -1 for unknown, which counts for nothing
    share_wrong: ε; 0 for the usual logistic regression
    start:    a model of the scores alone, where the search for weights starts
    """
    from scipy.optimize import minimize

    known = (targets >= 0).astype(np.float64)
    positive = (targets == 1).astype(np.float64)
    num_labels, num_evidence = scores.shape[1], evidence.shape[1]
    scale = scores.std(axis=0) + 1e-12
    standard = scores / scale

    def unpack(values: Values) -> NoisyLogistic:
        slopes, biases = values[:num_labels], values[num_labels : 2 * num_labels]
        return NoisyLogistic(slopes, biases, values[2 * num_labels :].reshape(num_evidence, num_labels))

    def loss(values: Values) -> tuple[float, Values]:
        model = unpack(values)
        p = model.probabilities(standard, evidence)
        given = np.clip(share_wrong + (1 - 2 * share_wrong) * p, 1e-12, 1 - 1e-12)
        of_given = np.where(positive == 1, given, 1 - given)
        by_given = known * (given - positive) / (given * (1 - given))
        by_logit = by_given * (1 - 2 * share_wrong) * p * (1 - p)
        slope_step = model.slopes - 1
        total = -(known * np.log(of_given)).sum()
        total += 0.5 * penalty * (model.weights**2).sum() + 0.5 * SLOPE_PENALTY * (slope_step**2).sum()
        gradient = np.concatenate(
            [
                (by_logit * standard).sum(axis=0) + SLOPE_PENALTY * slope_step,
                by_logit.sum(axis=0),
                ((evidence.T @ by_logit + penalty * model.weights) * allowed).ravel(),
            ]
        )
        return float(total), gradient

    no_weights = np.zeros(num_evidence * num_labels)
    if start is None:
        rates = np.clip(positive.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 1e-4, 1 - 1e-4)
        first = [np.ones(num_labels), np.log(rates / (1 - rates)), no_weights]
    else:
        first = [start.slopes * scale, start.biases, no_weights]
    found = minimize(
        loss, np.concatenate(first), jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS}
    )
    model = unpack(found.x)
    return replace(model, slopes=model.slopes / scale)


def believed(probabilities: Values, targets: Targets, share_wrong: float = SHARE_WRONG) -> Values:
    """The probability of each label once its given value is known, N x L; p where it is unknown."""
    p = probabilities
    if_given = p * (1 - share_wrong) / (p * (1 - share_wrong) + (1 - p) * share_wrong + 1e-12)
    if_not = p * share_wrong / (p * share_wrong + (1 - p) * (1 - share_wrong) + 1e-12)
    return np.where(targets == 1, if_given, np.where(targets == 0, if_not, p))
