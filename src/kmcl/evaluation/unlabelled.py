"""Calibration and threshold of a label from images that show it and images of which it is not known.

With U the scores of unlabelled images, P those of images that show the label, and q the share of unlabelled
images that show it, the absent images are U without q parts of P. So the expected log-loss needs no absent
image (du Plessis et al., ICML 2015):

    R = E_U[log(1 + exp z)] - q E_P[z],    z = a f + b
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.label_rules import sigmoid
from kmcl.evaluation.ranking import Values
from kmcl.evaluation.thresholds import half_of_best_f1

LARGEST_SHARE = 0.5
USUAL_SHARE = 0.05
"""Of a label that nothing is known of, unless the shares of other labels are known."""
WEIGHT_BELOW, WEIGHT_ABOVE = 40, 5
"""How many examples the usual share counts as, where it is below and where it is above what these say.

What they say is an upper bound, which overlapping scores raise. So it is lowered by more than it is raised,
and raised to `USUAL_SHARE` at most: the training images may have none. With 2 to 100 examples of each label
of COCO's 18 and of ChestX-ray14, on their training images, with the other labels for the usual share, the
estimate was off by a factor of e^0.46 and e^0.71 (mean of the logarithms), and with 0.05 counted as 10
examples by e^0.45 and e^1.20.
"""
RIDGE = 1e-3
"""On the squared slope of standardised scores: a few examples that all lie above the rest leave it open."""
STEPS = 100


class UnlabelledCalibration(NamedTuple):
    """The probability sigmoid(slope · f + bias), and from which one the label counts as present.

    share:      of unlabelled images that show the label
    covariance: 2 x 2, of the line's parameters for x = (z, 1): H⁻¹ (q² / P E_P[x xᵀ]) H⁻¹ with
                H = E_U[p (1 - p) x xᵀ]. The P examples decide how well the line is known, and with it q,
                whose own relative deviation is taken as 1 / √P.
    """

    slope: float
    bias: float
    threshold: float
    share: float
    covariance: Values


def estimate_share(positive: Values, unlabelled: Values, usual_share: float = USUAL_SHARE) -> float:
    """The share of unlabelled images that show the label.

        q = min over t of U(t) / P(t),    U(t), P(t): the shares of scores of at least t

    since U(t) >= q P(t) for every t (Blanchard et al., JMLR 2010). Only t with √P of the P positives above
    them count: of fewer, the ratio would be chance. Where scores overlap q is too large, and with few
    positives it is hardly known; its logarithm is averaged with that of `usual_share`, the share of labels of
    which nothing is known, which weighs as much as `WEIGHT_BELOW` or `WEIGHT_ABOVE` positives.
    """
    ordered, number = np.sort(positive)[::-1], len(positive)
    ranks = range(math.ceil(math.sqrt(number)), number + 1)
    ratio = min(float(np.mean(unlabelled >= ordered[rank - 1])) * number / rank for rank in ranks)
    found = min(max(ratio, 1 / (len(unlabelled) + 1)), LARGEST_SHARE)
    if usual_share < found:
        weight, usual = WEIGHT_BELOW, usual_share
    else:
        weight, usual = WEIGHT_ABOVE, max(found, min(usual_share, USUAL_SHARE))
    logarithm = number * math.log(found) + weight * math.log(usual)
    return math.exp(logarithm / (number + weight))


def calibrate_unlabelled(
    positive: Values, unlabelled: Values, share: float | None = None, usual_share: float = USUAL_SHARE
) -> UnlabelledCalibration:
    """Slope and bias of least R, and the threshold of the highest expected F1.

    positive, unlabelled: scores of images that were not used to compute them
    share:                q; estimated if not given, with `usual_share`, see `estimate_share`
    """
    if not len(positive) or not len(unlabelled):
        raise InputError(f"a calibration needs scores; got {len(positive)} and {len(unlabelled)}")
    share = estimate_share(positive, unlabelled, usual_share) if share is None else share
    if not 0 < share < 1:
        raise InputError(f"share must be above 0 and below 1; got {share}")
    centre, scale = float(unlabelled.mean()), float(unlabelled.std()) or 1.0
    positive_mean = float((positive.mean() - centre) / scale)
    slope, bias = _least_risk((unlabelled - centre) / scale, positive_mean, share)
    slope, bias = slope / scale, bias - slope * centre / scale
    of_unlabelled = slope * unlabelled + bias
    probabilities = sigmoid(of_unlabelled)
    covariance = _covariance(slope * positive + bias, of_unlabelled, probabilities, share)
    return UnlabelledCalibration(slope, bias, half_of_best_f1(probabilities), share, covariance)


def _covariance(positive: Values, unlabelled: Values, probabilities: Values, share: float) -> Values:
    of_positive = np.column_stack([positive, np.ones_like(positive)])
    of_unlabelled = np.column_stack([unlabelled, np.ones_like(unlabelled)])
    weights = probabilities * (1 - probabilities) / len(unlabelled)
    curvature = (of_unlabelled * weights[:, None]).T @ of_unlabelled
    inverse = np.linalg.inv(curvature + 1e-9 * np.eye(2))
    noise = share**2 / len(positive) * (of_positive.T @ of_positive) / len(positive)
    covariance: Values = inverse @ noise @ inverse
    return covariance


def _least_risk(scores: Values, positive_mean: float, share: float) -> tuple[float, float]:
    """Newton's method with step halving; R is convex."""
    design = np.column_stack([scores, np.ones_like(scores)])
    target = share * np.array([positive_mean, 1.0])
    ridge = np.array([RIDGE, 0.0])

    def risk(line: Values) -> float:
        z = design @ line
        softplus = np.maximum(z, 0) + np.log1p(np.exp(-np.abs(z)))
        return float(softplus.mean() - target @ line + 0.5 * ridge @ line**2)

    line = np.array([1.0, float(np.log(share / (1 - share)))])
    value = risk(line)
    for _ in range(STEPS):
        p = sigmoid(design @ line)
        gradient = design.T @ p / len(scores) - target + ridge * line
        hessian = (design * (p * (1 - p))[:, None]).T @ design / len(scores) + np.diag(ridge + 1e-12)
        step = np.linalg.solve(hessian, gradient)
        if gradient @ step < 1e-12:
            break
        size = 1.0
        while (better := risk(line - size * step)) > value and size > 1e-6:
            size /= 2
        line, value = line - size * step, better
    return max(float(line[0]), 1e-6), float(line[1])
