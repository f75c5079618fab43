"""Scores of labels for each image from the labels of all other images: nobody judges a label by itself."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kmcl.data.groups import units_of_rows
from kmcl.data.splitting import stratify
from kmcl.evaluation.ranking import Values, average_precision, operating_points
from kmcl.kernels.targets import read_targets
from kmcl.labelling.image_features import Floats
from kmcl.posthoc.frozen_gp import SMOOTHNESS

MOST_IMAGES = 8000
"""Of one process, which needs the inverse of a matrix of that size; larger sets are cut into parts."""
SAMPLED_IMAGES = 2000
"""That the smoothness is chosen on."""
LEAST_DEVIATION = 1e-6

Targets = npt.NDArray[np.int8]
Units = npt.NDArray[np.int64]


def left_out_scores(
    directions: Floats, targets: Targets, groups: npt.NDArray[np.str_] | None = None, seed: int = 0
) -> Values:
    """How much the other images suggest each label for an image, N x L; 0 is the label's frequency.

    The posterior mean of the Gaussian process of `FrozenFeatureGP` at each image, given the labels of all
    images but those of its group (in no group: but its own). With P the inverse of the covariance of the
    observations r, and α = P r, that mean needs no second fit:

        mean_G = r_G - (P_GG)⁻¹ α_G                 for a group G; r_i - α_i / P_ii for a single image i

    The smoothness is the one of `SMOOTHNESS` whose means rank the given labels of some images best.

    directions: N unit vectors
    targets:    N x L; 1, 0, or -1 for unknown
    groups:     N names of groups whose images must not judge each other (a patient's)
    """
    units = units_of_rows(groups, len(targets))
    smoothness = best_smoothness(directions, targets, units, seed)
    num_parts = math.ceil(len(targets) / MOST_IMAGES)
    part_of_row = stratify(targets, [1 / num_parts] * num_parts, seed, groups)
    scores = np.zeros(targets.shape)
    for part in range(num_parts):
        rows = np.flatnonzero(part_of_row == part)
        scores[rows] = _means_of_part(directions[rows], targets[rows], units[rows], *smoothness)
    return scores


def best_smoothness(directions: Floats, targets: Targets, units: Units, seed: int = 0) -> tuple[float, float]:
    """The variance and the noise with which some of the images, whole units, say most about each other."""
    order = np.random.default_rng(seed).permutation(int(units.max()) + 1)
    rows = np.argsort(order[units], kind="stable")[:SAMPLED_IMAGES]
    part = directions[rows], targets[rows], units[rows]
    return max(
        SMOOTHNESS, key=lambda pair: mean_left_out_precision(_means_of_part(*part, *pair), targets[rows])
    )


@torch.no_grad()
def _means_of_part(
    directions: Floats, targets: Targets, units: Units, variance: float, noise: float
) -> Values:
    precision = inverse_covariance(torch.from_numpy(directions), variance, noise)
    means: Values = left_out_means(precision, standardised(targets), units).double().numpy()
    return means


def inverse_covariance(directions: Tensor, variance: float, noise: float) -> Tensor:
    """P, N x N."""
    covariance = torch.exp((directions @ directions.T - 1) / (4 * variance))
    covariance.diagonal().add_(noise)
    return torch.cholesky_inverse(torch.linalg.cholesky(covariance))


def standardised(targets: Targets) -> Tensor:
    """r: the labels with mean 0 and deviation 1, and 0 where unknown."""
    annotation = read_targets(torch.from_numpy(targets))
    positive, known = annotation.positive.float(), annotation.known.float()
    rates = positive.sum(dim=0) / known.sum(dim=0).clamp(min=1)
    deviations = (rates * (1 - rates)).sqrt().clamp(min=LEAST_DEVIATION)
    return (positive - rates * known) / deviations


def left_out_means(precision: Tensor, observations: Tensor, units: Units) -> Tensor:
    """The posterior mean of each row without the observations of its unit.

    units: N numbers; rows of one unit are left out together
    """
    weights = precision @ observations
    means = observations - weights / precision.diagonal().unsqueeze(1)
    order = np.argsort(units, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(units[order])) + 1):
        if len(rows) > 1:
            unit = torch.from_numpy(rows)
            within = precision[unit][:, unit]
            means[unit] = observations[unit] - torch.linalg.solve(within, weights[unit])
    return means


def mean_left_out_precision(scores: Values, targets: Targets) -> float:
    """The mean average precision with which scores rank the given labels."""
    found = []
    for label_scores, label_targets in zip(scores.T, targets.T, strict=True):
        known = label_targets >= 0
        positive = label_targets[known] == 1
        if positive.any():
            found.append(average_precision(operating_points(label_scores[known], positive)))
    return float(np.mean(found)) if found else 0.0
