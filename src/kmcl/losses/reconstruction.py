"""Eq. 5: the share of an image's kernel mixture that its own labels explain."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kmcl.kernels import KernelMixture, log_components, log_mixture
from kmcl.kernels.precision import without_autocast
from kmcl.kernels.targets import Targets
from kmcl.losses.arguments import check_inputs, check_same_shape, mean_over_images
from kmcl.shapes import Bool, Float, Num


@without_autocast
def reconstruction_loss(
    features: Float[Tensor, "B D"],
    mixture: KernelMixture,
    targets: Num[Tensor, "B L"] | Bool[Tensor, "B L"] | Targets,
    *,
    num_images: Tensor | float | None = None,
) -> Float[Tensor, ""]:
    """Mean negative log-share of the present labels in the mixture (Eq. 5).

        L_REC = 1/N Σ_n -log( G_S(fⁿ) / G_Y(fⁿ) ) = 1/N Σ_n softplus( log G_N(fⁿ) - log G_S(fⁿ) )

    S, N and Y are an image's present, absent and known labels, so G_Y = G_S + G_N. The second form never
    leaves log space, never is negative, and is exact where the share is close to 1.

    An image without a present label adds 0 (the paper's -log 0 has no value), and so does one without an
    absent label; both count in N. `num_images` replaces N, by default the images with a known label. Inputs
    are checked, unless targets are `Targets`, which a caller has checked with the rest (`check_inputs`).
    """
    check_same_shape("targets", targets, "the mixture's logits", mixture.logits)
    checked = check_inputs(
        targets,
        {
            "features": features,
            "mixture.logits": mixture.logits,
            "mixture.means": mixture.means,
            "mixture.variances": mixture.variances,
        },
        above_zero=("mixture.variances",),
    )
    components = log_components(features, mixture)
    # Rows are selected before the logarithms: an empty sum's gradient is NaN even where its value is masked.
    rows = (checked.positive.any(dim=1) & checked.negative.any(dim=1)).nonzero().squeeze(1)
    components = components[rows]
    present = log_mixture(components, checked.positive[rows])
    absent = log_mixture(components, checked.negative[rows])
    return mean_over_images(functional.softplus(absent - present).sum(), checked, num_images)


class ReconstructionLoss(torch.nn.Module):
    """`reconstruction_loss` as a module."""

    def forward(self, features: Tensor, mixture: KernelMixture, targets: Tensor) -> Tensor:
        return reconstruction_loss(features, mixture, targets)
