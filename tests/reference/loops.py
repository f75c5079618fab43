"""The paper's equations as plain loops over numbers, read off the page: slow, and hard to get wrong."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def expand(mixture) -> tuple[Array, Array]:
    """Means and variances of every image and label as B x L x D, whatever the kernel."""
    shape = (*mixture.logits.shape, mixture.feature_dim)
    means, variances = mixture.means.detach().double().numpy(), mixture.variances.detach().double().numpy()
    if means.ndim == 2:
        means, variances = means[..., None], variances[..., None]
    return np.broadcast_to(means, shape), np.broadcast_to(variances, shape)


def similarity(mean_p: Array, variance_p: Array, mean_q: Array, variance_q: Array, kernel: str) -> float:
    """Corollary 2 (i), or its exponential factor for the Mahalanobis and Gaussian kernels."""
    exponent = sum(
        (mp - mq) ** 2 / (vp + vq)
        for mp, vp, mq, vq in zip(mean_p, variance_p, mean_q, variance_q, strict=True)
    )
    result = math.exp(-exponent / 4)
    if kernel in ("isotropic", "anisotropic"):
        for vp, vq in zip(variance_p, variance_q, strict=True):
            result *= ((vp + vq) / (2 * math.sqrt(vp * vq))) ** -0.5
    return result


def reconstruction(features, mixture, targets) -> float:
    """Eq. 5, with an image without present labels adding 0."""
    means, variances = expand(mixture)
    features = features.detach().double().numpy()
    probabilities = mixture.probabilities.detach().double().numpy()
    total, images = 0.0, 0
    for n, row in enumerate(targets.tolist()):
        present = [k for k, value in enumerate(row) if value == 1]
        known = [k for k, value in enumerate(row) if value in (0, 1)]
        images += bool(known)
        component = {
            k: probabilities[n, k]
            * math.exp(-(((features[n] - means[n, k]) ** 2) / (2 * variances[n, k])).sum())
            for k in known
        }
        if present:
            total -= math.log(sum(component[k] for k in present) / sum(component.values()))
    return total / max(images, 1)


def asymmetric(logits, targets, positive_focus: float, negative_focus: float, margin: float) -> float:
    """Eq. 6."""
    total, images = 0.0, 0
    for logit_row, target_row in zip(logits.detach().double().tolist(), targets.tolist(), strict=True):
        images += any(value in (0, 1) for value in target_row)
        for logit, target in zip(logit_row, target_row, strict=True):
            probability = 1 / (1 + math.exp(-logit))
            shifted = max(probability - margin, 0)
            if target == 1:
                total -= (1 - probability) ** positive_focus * math.log(probability)
            elif target == 0:
                total -= shifted**negative_focus * math.log(1 - shifted)
    return total / max(images, 1)


def detached_asymmetric_gradient(
    logits, targets, positive_focus: float, negative_focus: float, margin: float
) -> Array:
    """∂ Eq. 6 / ∂ logits with the focal factors held constant, by hand."""
    rows = logits.detach().double().tolist()
    gradient = np.zeros((len(rows), len(rows[0])))
    images = sum(any(value in (0, 1) for value in row) for row in targets.tolist())
    for n, (logit_row, target_row) in enumerate(zip(rows, targets.tolist(), strict=True)):
        for k, (logit, target) in enumerate(zip(logit_row, target_row, strict=True)):
            probability = 1 / (1 + math.exp(-logit))
            shifted = max(probability - margin, 0)
            if target == 1:  # -w log p
                gradient[n, k] = -((1 - probability) ** positive_focus) * (1 - probability)
            elif target == 0 and shifted > 0:  # -w log(1 - (p - m))
                slope = probability * (1 - probability)
                gradient[n, k] = shifted**negative_focus * slope / (1 - shifted)
    return gradient / max(images, 1)


def contrastive(mixture, targets, temperature: float, *, jaccard_in_log: bool = False) -> float:
    """Eq. 7 as printed: sums over anchors, positives and shared labels, each with its own denominator.

    Or with J as a factor inside the logarithm.
    """
    means, variances = expand(mixture)
    rows = targets.tolist()
    count = len(rows)

    def rho(k: int, n: int, m: int) -> float:
        return similarity(means[n, k], variances[n, k], means[m, k], variances[m, k], mixture.kernel)

    def jaccard(n: int, m: int) -> float:
        both = [(a, b) for a, b in zip(rows[n], rows[m], strict=True) if a in (0, 1) and b in (0, 1)]
        return sum(a * b for a, b in both) / sum(max(a, b) for a, b in both)

    def shared(n: int, m: int) -> list[int]:
        return [k for k, (a, b) in enumerate(zip(rows[n], rows[m], strict=True)) if a == 1 and b == 1]

    total = 0.0
    for n in range(count):
        positives = [m for m in range(count) if m != n and shared(n, m)]
        for m in positives:
            for k in shared(n, m):
                others = [i for i in range(count) if i != n and rows[i][k] in (0, 1)]
                denominator = sum(math.exp(rho(k, n, i) / temperature) for i in others)
                share = math.exp(rho(k, n, m) / temperature) / denominator
                if jaccard_in_log:
                    total -= math.log(jaccard(n, m) * share) / len(positives)
                else:
                    total -= jaccard(n, m) * math.log(share) / len(positives)
    return total / max(sum(any(value in (0, 1) for value in row) for row in rows), 1)
