"""Eq. 6: the asymmetric classification loss, which down-weights easy absent labels."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.kernels.targets import Targets
from kmcl.losses.arguments import check_between, check_inputs, check_same_shape, mean_over_images
from kmcl.shapes import Bool, Float, Num


@without_autocast
def asymmetric_loss(
    logits: Float[Tensor, "B L"],
    targets: Num[Tensor, "B L"] | Bool[Tensor, "B L"] | Targets,
    *,
    positive_focus: float = 0.0,
    negative_focus: float = 4.0,
    probability_margin: float = 0.05,
    detach_focus: bool = False,
    num_images: Tensor | float | None = None,
) -> Float[Tensor, ""]:
    """Asymmetric loss, summed over labels, mean over images (Eq. 6).

        L_ASL = 1/N Σ_n Σ_k -y (1 - π)^γ⁺ log π - (1 - y) π_m^γ⁻ log(1 - π_m),   π_m = max(π - m, 0)

    π = sigmoid(logits), γ⁺ = positive_focus, γ⁻ = negative_focus, m = probability_margin. Unknown labels add
    nothing. With `detach_focus` the factors (1 - π)^γ⁺ and π_m^γ⁻ are constants to the gradient, as in the
    code of ASL's authors; the value is the same. `num_images` replaces N, by default the images with a known
    label. Inputs are checked, unless targets are `Targets`, which a caller has checked with the rest
    (`check_inputs`).

    Everything is formed from log-sigmoids, so a confident and wrong logit costs its magnitude instead of
    infinity. With m = 0 and both focuses 0 this is binary cross-entropy.
    """
    check_between("positive_focus", positive_focus, 0, math.inf)
    check_between("negative_focus", negative_focus, 0, math.inf)
    check_between("probability_margin", probability_margin, 0, 0.999)
    check_same_shape("targets", targets, "logits", logits)
    checked = check_inputs(targets, {"logits": logits})
    logits = at_least_float32(logits)

    log_present, log_absent = functional.logsigmoid(logits), functional.logsigmoid(-logits)
    positive_weights = torch.exp(positive_focus * log_absent)
    # Below the margin the term is exactly 0; those logits are replaced before the powers and logarithms,
    # whose derivatives at π_m = 0 are infinite for focuses below 1.
    inside = log_present.exp() > probability_margin
    zero, log_positive = logits.new_zeros(()), log_present
    log_present, log_absent = log_present.where(inside, zero), log_absent.where(inside, zero)
    if probability_margin > 0:
        log_margin = logits.new_tensor(math.log(probability_margin))
        log_shifted = torch.log(log_present.exp() - probability_margin)
        log_shifted_absent = torch.logaddexp(log_absent, log_margin).clamp(max=0)  # above 0 only by rounding
    else:
        log_shifted, log_shifted_absent = log_present, log_absent
    negative_weights = torch.exp(negative_focus * log_shifted)
    if detach_focus:
        positive_weights, negative_weights = positive_weights.detach(), negative_weights.detach()
    positive_terms = -positive_weights * log_positive
    negative_terms = -negative_weights * log_shifted_absent * inside

    terms = positive_terms.where(checked.positive, zero) + negative_terms.where(checked.negative, zero)
    return mean_over_images(terms.sum(), checked, num_images)


class AsymmetricLoss(torch.nn.Module):
    """`asymmetric_loss` with its hyper-parameters."""

    def __init__(
        self, positive_focus: float = 0.0, negative_focus: float = 4.0, probability_margin: float = 0.05
    ) -> None:
        super().__init__()
        check_between("positive_focus", positive_focus, 0, math.inf)
        check_between("negative_focus", negative_focus, 0, math.inf)
        check_between("probability_margin", probability_margin, 0, 0.999)
        self.positive_focus = positive_focus
        self.negative_focus = negative_focus
        self.probability_margin = probability_margin

    def forward(self, logits: Tensor, targets: Tensor) -> Tensor:
        return asymmetric_loss(
            logits,
            targets,
            positive_focus=self.positive_focus,
            negative_focus=self.negative_focus,
            probability_margin=self.probability_margin,
        )
