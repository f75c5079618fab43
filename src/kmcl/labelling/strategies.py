"""Ways to choose the images to label next; `benchmarks/next_images.py` measures what they are worth."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kmcl.evaluation.ranking import Values
from kmcl.labelling.image_features import Floats

KERNEL_VARIANCE = 0.2
"""σ² of the similarity of images, as in `FrozenFeatureGP`."""
NOISE = 0.5
MOST_LABELLED = 2000
"""Labelled images that variances are computed with: so many, evenly spread over them, if there are more."""

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Candidates:
    """N images without labels, and what is known of the labelled ones.

    probabilities: N x L
    directions:    N x D unit vectors
    labelled:      M x D unit vectors of the labelled images
    """

    probabilities: Values
    directions: Floats
    labelled: Floats

    def __len__(self) -> int:
        return len(self.probabilities)


Strategy = Callable[[Candidates, int, np.random.Generator], Places]
"""From candidates, and how many are wanted, to their places, the most wanted first."""


def choose_at_random(candidates: Candidates, count: int, rng: np.random.Generator) -> Places:
    return rng.permutation(len(candidates))[:count]


def choose_uncertain(candidates: Candidates, count: int, rng: np.random.Generator) -> Places:
    """Those whose labels are least clear: the largest sum of the labels' entropies."""
    return _largest(entropies(candidates.probabilities).sum(axis=1), count)


def choose_spread(candidates: Candidates, count: int, rng: np.random.Generator) -> Places:
    """Those that the labelled images and each other say least about, see `spread_out`."""
    return spread_out(candidates, count, np.ones(len(candidates)))


def entropies(probabilities: Values) -> Values:
    p = np.clip(probabilities, 1e-9, 1 - 1e-9)
    return np.asarray(-p * np.log(p) - (1 - p) * np.log1p(-p))


def spread_out(candidates: Candidates, count: int, weights: Values) -> Places:
    """Greedily take the image with the largest posterior variance of the Gaussian process, times its weight.

    The variance is that given the labelled images and those chosen so far: images like these come last.
    """
    variances, factors = variances_given_labelled(candidates)
    chosen: list[int] = []
    rows = np.zeros((count, len(candidates)), dtype=np.float32)
    for step in range(min(count, len(candidates))):
        gains = variances * weights
        gains[chosen] = -np.inf
        best = int(gains.argmax())
        chosen.append(best)
        known = factors.T @ factors[:, best] + rows[:step].T @ rows[:step, best]
        covariance = similarities(candidates.directions, candidates.directions[best : best + 1])[:, 0] - known
        rows[step] = covariance / np.sqrt(variances[best] + NOISE)
        variances = np.maximum(variances - rows[step] ** 2, 1e-9)
    return np.array(chosen, dtype=np.int64)


def similarities(first: Floats, second: Floats) -> Floats:
    """Bhattacharyya coefficients of the images' kernels, see `FrozenFeatureGP`."""
    found: Floats = np.exp((first @ second.T - 1) / (4 * KERNEL_VARIANCE))
    return found


def variances_given_labelled(candidates: Candidates) -> tuple[Floats, Floats]:
    """Posterior variances, N, and what the labelled images explain of the covariance, as factors M x N."""
    step = max(1, math.ceil(len(candidates.labelled) / MOST_LABELLED))
    labelled = candidates.labelled[::step]
    covariance = similarities(labelled, labelled)
    covariance[np.diag_indices_from(covariance)] += NOISE
    lower = np.linalg.cholesky(covariance)
    factors = np.linalg.solve(lower, similarities(labelled, candidates.directions))
    return 1 - (factors**2).sum(axis=0), factors.astype(np.float32)


def _largest(values: Values, count: int) -> Places:
    return np.argsort(-values, kind="stable")[:count]


STRATEGIES: dict[str, Strategy] = {
    "spread": choose_spread,
    "uncertain": choose_uncertain,
    "random": choose_at_random,
}
"""By the word for --strategy."""
