"""Cosine classifiers with the asymmetric angular margin loss (Prokofiev and Sovrasov, arXiv 2209.06585)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.kernels.precision import at_least_float32, without_autocast
from kmcl.kernels.targets import Targets
from kmcl.losses.arguments import check_inputs, mean_over_images
from kmcl.losses.distributed import images_per_process
from kmcl.methods.interface import LossTerms, Method
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import AamOptions
from kmcl.shapes import Float


class AngularHead(nn.Module):
    """Logits s cos θ_k of the pooled features with a learned direction per label."""

    def __init__(self, encoder: Encoder, num_labels: int, options: AamOptions) -> None:
        super().__init__()
        self.scale = options.angular_scale
        self.directions = nn.Parameter(torch.empty(num_labels, encoder.feature_dim))
        nn.init.normal_(self.directions, std=0.01)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        features = functional.normalize(encoded.pooled, dim=1)
        cosines = features @ functional.normalize(self.directions, dim=1).T
        return HeadOutput(self.scale * cosines, encoded.pooled, None)


@without_autocast
def angular_margin_loss(
    logits: Float[Tensor, "B L"],
    targets: Targets,
    options: AamOptions,
    num_images: Tensor | float | None = None,
) -> Float[Tensor, ""]:
    """Asymmetric angular margin loss, summed over labels, mean over images.

        1/N Σ_n Σ_k -(k/s) y p₋^γ⁺ log p₊ - ((1 - k)/s) (1 - y) p₊^γ⁻ log p₋,
        p₊ = sigmoid(z - s m),   p₋ = min(sigmoid(-z - s m) + c, 1)

    z = s cos θ, the logits; s = angular_scale, m = angular_margin, k = positive_share, γ± the focuses,
    c = probability_margin. Unknown labels add nothing. With m = 0, c = 0, no focus and k = 1/2 it is binary
    cross-entropy over 2 s.
    """
    logits, shift = at_least_float32(logits), options.angular_scale * options.angular_margin
    log_present = functional.logsigmoid(logits - shift)
    log_absent = functional.logsigmoid(-logits - shift)
    if options.probability_margin > 0:
        added = logits.new_tensor(math.log(options.probability_margin))
        log_absent = torch.logaddexp(log_absent, added).clamp(max=0)
    positive_terms = -torch.exp(options.positive_focus * log_absent) * log_present
    negative_terms = -torch.exp(options.negative_focus * log_present) * log_absent
    zero, share = logits.new_zeros(()), options.positive_share
    terms = share * positive_terms.where(targets.positive, zero)
    terms = terms + (1 - share) * negative_terms.where(targets.negative, zero)
    return mean_over_images(terms.sum() / options.angular_scale, targets, num_images)


def aam_loss(output: HeadOutput, targets: Tensor | Targets, options: AamOptions) -> LossTerms:
    checked = check_inputs(targets, {"logits": output.logits})
    loss = angular_margin_loss(output.logits, checked, options, images_per_process(checked))
    return LossTerms(loss, {"classification": loss})


METHOD = Method(AamOptions, AngularHead, aam_loss)
