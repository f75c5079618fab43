"""A label from a few examples: a Gaussian process on images of which the label is mostly not known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kmcl.shapes import Bool, Float

VARIANCE, NOISE = 0.2, 0.5
SAME_IMAGE = 0.995
"""The cosine from which a remembered image counts as one of the given ones."""
ENDLESS = 1e6


class FittedLabel(NamedTuple):
    """A process over M remembered images and E given ones, of which P show the label.

    coefficients: M + E, α
    of_examples:  P, the posterior mean at each image that shows the label, without that image
    of_others:    the same at each remembered image that is not among the given ones
    """

    coefficients: Float[Tensor, " ME"]
    of_examples: Float[Tensor, " P"]
    of_others: Float[Tensor, " O"]


@torch.no_grad()
def fit_label(
    remembered: Float[Tensor, "M D"],
    given: Float[Tensor, "E D"],
    shows: Bool[Tensor, " E"],
    variance: float = VARIANCE,
    noise: float = NOISE,
) -> FittedLabel:
    """Solve for α, and predict each image from all others.

        (ρ + ν I) α = y - p,    y = 1 for the images that show the label, else 0

    p is the mean of y. Whether remembered images show the label is not known; they are taken as not showing
    it: most do not, and those that do still score higher than the rest, as the examples around them pull
    them up. A remembered image that is given itself counts for nothing: its noise is endless. With P the
    inverse of ρ + ν I, the posterior mean at image i without its own y is (y - p)_i - α_i / P_ii.

    remembered, given: unit vectors
    shows:             whether the given image shows the label; else it is known not to
    """
    directions = torch.cat([remembered, given]).float()
    repeated = (remembered.float() @ given.float().T).amax(dim=1) >= SAME_IMAGE
    present = torch.cat([torch.zeros(len(remembered)), shows.float().cpu()]).to(directions)
    residuals = present - present.mean()
    covariance = torch.exp((directions @ directions.T - 1) / (4 * variance))
    covariance.diagonal().add_(noise)
    covariance.diagonal()[: len(remembered)][repeated] += ENDLESS
    precision = torch.cholesky_inverse(torch.linalg.cholesky(covariance))
    coefficients = precision @ residuals
    left_out = residuals - coefficients / precision.diagonal()
    return FittedLabel(coefficients, left_out[present == 1], left_out[: len(remembered)][~repeated])
