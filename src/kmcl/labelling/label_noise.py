"""Logistic regression on labels some of which are wrong: it estimates how many, and which.

With t the true label and y the given one,

    P(t = 1) = p = σ(η)             P(y = 1 | t = 0) = α             P(y = 0 | t = 1) = β

so that P(y = 1) = α + (1 - α - β) p: however clear an image is, a share α of its absent labels is given and a
share β of its present ones is missing. Maximum likelihood finds α and β with the coefficients of η. Given y,
the label is wrong with probability

    (1 - p) α / ((1 - p) α + p (1 - β))   if y = 1,          p β / (p β + (1 - p) (1 - α))   if y = 0
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.ranking import Values
from kmcl.models.label_rules import sigmoid

MOST_ADDED, MOST_MISSING = 0.3, 0.6
LEAST_RATE = 1e-4
SLOPE_PENALTY = 0.05
ITERATIONS = 200

Targets = npt.NDArray[np.int8]


class NoiseRates(NamedTuple):
    """added:   α, of the absent labels, the share that is given
    missing: β, of the present labels, the share that is not
    """

    added: float
    missing: float


@dataclass(frozen=True)
class NoisyLogistic:
    """η_k = slope_k s_k + bias_k + Σ_f evidence_f weight_fk, and the rates of noise.

    slopes, biases: L numbers, for the scores s of the labels
    weights:        F x L, for evidence that all labels share
    """

    slopes: Values
    biases: Values
    weights: Values
    rates: NoiseRates

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
    noisy: bool = True,
) -> NoisyLogistic:
    """Maximum likelihood, penalised by `penalty` Σ weight² / 2.

    scores:   N x L
    evidence: N x F
    allowed:  F x L, which weights may differ from 0
    targets:  N x L; 1, 0, or -1 for unknown, which counts for nothing
    noisy:    False for α = β = 0: the usual logistic regression
    """
    from scipy.optimize import minimize

    known = (targets >= 0).astype(np.float64)
    positive = (targets == 1).astype(np.float64)
    num_labels, num_evidence = scores.shape[1], evidence.shape[1]
    scale = scores.std(axis=0) + 1e-12
    standard = scores / scale

    def unpack(values: Values) -> NoisyLogistic:
        slopes, biases = values[:num_labels], values[num_labels : 2 * num_labels]
        weights = values[2 * num_labels : -2].reshape(num_evidence, num_labels)
        added, missing = np.asarray(sigmoid(values[-2:])) * (MOST_ADDED, MOST_MISSING) if noisy else (0, 0)
        return NoisyLogistic(slopes, biases, weights, NoiseRates(float(added), float(missing)))

    def loss(values: Values) -> tuple[float, Values]:
        model = unpack(values)
        p = model.probabilities(standard, evidence)
        added, missing = model.rates
        given = np.clip(added + (1 - added - missing) * p, 1e-12, 1 - 1e-12)
        likelihood = known * (positive * np.log(given) + (1 - positive) * np.log1p(-given))
        by_given = known * (given - positive) / (given * (1 - given))
        by_logit = by_given * (1 - added - missing) * p * (1 - p)
        slope_step = model.slopes - 1
        total = -likelihood.sum() + 0.5 * penalty * (model.weights**2).sum()
        total += 0.5 * SLOPE_PENALTY * (slope_step**2).sum()
        by_rates = np.zeros(2)
        if noisy:
            shares = np.asarray(sigmoid(values[-2:]))
            by_rates = np.array(
                [(by_given * (1 - p)).sum() * MOST_ADDED, -(by_given * p).sum() * MOST_MISSING]
            )
            by_rates *= shares * (1 - shares)
        gradient = np.concatenate(
            [
                (by_logit * standard).sum(axis=0) + SLOPE_PENALTY * slope_step,
                by_logit.sum(axis=0),
                ((evidence.T @ by_logit + penalty * model.weights) * allowed).ravel(),
                by_rates,
            ]
        )
        return float(total), gradient

    rates = np.clip(positive.sum(axis=0) / np.maximum(known.sum(axis=0), 1), 1e-4, 1 - 1e-4)
    start = np.concatenate(
        [np.ones(num_labels), np.log(rates / (1 - rates)), np.zeros(num_evidence * num_labels), [-3.0, -3.0]]
    )
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    model = unpack(found.x)
    return replace(model, slopes=model.slopes / scale)


def probability_of_error(probabilities: Values, targets: Targets, rates: NoiseRates) -> Values:
    """How probable it is that each given label is wrong, N x L; 0 where it is unknown."""
    added, missing = (max(rate, LEAST_RATE) for rate in rates)
    p = probabilities
    if_given = (1 - p) * added / ((1 - p) * added + p * (1 - missing) + 1e-12)
    if_not = p * missing / (p * missing + (1 - p) * (1 - added) + 1e-12)
    return np.where(targets == 1, if_given, np.where(targets == 0, if_not, 0.0))
