"""A label from a few examples: a linear discriminant between them and images of which nothing is known."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from kmcl.errors import InputError
from kmcl.shapes import Bool, Float

SHRINKAGE = 3.0
"""Of the covariance towards a multiple of the identity; chosen on val of COCO with 2 to 100 examples."""
SAME_IMAGE = 0.995
"""The cosine from which a remembered image counts as one of the given ones."""


class FittedLabel(NamedTuple):
    """A discriminant w, fitted to M remembered images and E given ones, of which P show the label.

    weights:     D, w
    sigma:       the standard deviation of the shared covariance, mean over its directions
    of_examples: P, w · u of each image that shows the label, with w from the other ones
    of_others:   w · u of each remembered image that is not among the given ones
    """

    weights: Float[Tensor, " D"]
    sigma: Float[Tensor, ""]
    of_examples: Float[Tensor, " P"]
    of_others: Float[Tensor, " O"]


@torch.no_grad()
def fit_label(
    remembered: Float[Tensor, "M D"],
    given: Float[Tensor, "E D"],
    shows: Bool[Tensor, " E"],
    shrinkage: float = SHRINKAGE,
) -> FittedLabel:
    """Fisher's discriminant with a shrunk covariance.

        w = (C + κ c I)⁻¹ (m - r),    c = tr(C) / D

    m is the mean of the images that show the label, r that of the others, C the covariance of the remembered
    images and κ the shrinkage. Whether remembered images show the label is not known, and some do. That does
    not turn w: with a share q of them, r lies on the line from the mean of absent images to m, so that m - r
    is 1 - q times the difference that knowing all labels would give. A process that is fitted to each image
    would learn that those are absent.

    Images that are known not to show the label count in r, each as much as an example does, beside the mean
    of the remembered ones. A remembered image that is given itself is left out.

    remembered, given: unit vectors
    shows:             whether the given image shows the label; else it is known not to
    """
    remembered, given = remembered.double(), given.double()
    others = remembered[(remembered @ given.T).amax(dim=1) < SAME_IMAGE]
    if not len(others):
        raise InputError("all images that the model remembers are among the given ones")
    examples, absent = given[shows], given[~shows]
    num = len(examples)
    present_mean = examples.mean(dim=0)
    absent_mean = (num * others.mean(dim=0) + absent.sum(dim=0)) / (num + len(absent))
    centred = others - others.mean(dim=0)
    covariance = centred.T @ centred / len(others)
    scale = covariance.diagonal().mean().clamp(min=torch.finfo(torch.float32).eps)
    covariance.diagonal().add_(shrinkage * scale)
    factor = torch.linalg.cholesky(covariance)
    weights = torch.cholesky_solve((present_mean - absent_mean).unsqueeze(1), factor).squeeze(1)
    # Without example i the mean moves by (m - u_i) / (P - 1).
    moved = torch.cholesky_solve((present_mean - examples).T, factor).T / max(num - 1, 1)
    return FittedLabel(
        weights.float(),
        covariance.diagonal().mean().sqrt().float(),
        (examples @ weights + (examples * moved).sum(dim=1)).float(),
        (others @ weights).float(),
    )
