"""A linear head on the pooled features, with the asymmetric loss, focal loss or binary cross-entropy.

The rivals with a head of their own are all trained with the asymmetric loss here, whatever their papers used
(each file says what), so that a comparison of heads is not one of losses.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.kernels.targets import Targets
from kmcl.losses import asymmetric_loss
from kmcl.losses.arguments import check_inputs
from kmcl.losses.distributed import images_per_process
from kmcl.methods.interface import LossTerms, Method
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import AslOptions, AsymmetricOptions, BceOptions, FocalOptions, MethodOptions


class LinearHead(nn.Module):
    """One linear layer, weights normal with deviation 0.01, biases 0."""

    def __init__(self, encoder: Encoder, num_labels: int, options: MethodOptions) -> None:
        super().__init__()
        self.logits = nn.Linear(encoder.feature_dim, num_labels)
        with torch.no_grad():
            self.logits.weight.normal_(std=0.01)
            self.logits.bias.zero_()

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        return HeadOutput(self.logits(encoded.pooled), encoded.pooled, None)


def asl_loss(output: HeadOutput, targets: Tensor | Targets, options: AsymmetricOptions) -> LossTerms:
    """Eq. 6 alone."""
    checked = check_inputs(targets, {"logits": output.logits})
    loss = asymmetric_loss(
        output.logits,
        checked,
        positive_focus=options.positive_focus,
        negative_focus=options.negative_focus,
        probability_margin=options.probability_margin,
        num_images=images_per_process(checked),
    )
    return LossTerms(loss, {"classification": loss})


def bce_loss(output: HeadOutput, targets: Tensor | Targets, options: MethodOptions) -> LossTerms:
    """Binary cross-entropy, summed over labels like Eq. 6: the asymmetric loss without focus and margin."""
    checked = check_inputs(targets, {"logits": output.logits})
    loss = asymmetric_loss(
        output.logits,
        checked,
        negative_focus=0,
        probability_margin=0,
        num_images=images_per_process(checked),
    )
    return LossTerms(loss, {"classification": loss})


def focal_loss(output: HeadOutput, targets: Tensor | Targets, options: FocalOptions) -> LossTerms:
    """Focal loss (Lin et al., ICCV 2017), summed over labels like Eq. 6.

        -y (1 - π)^γ log π - (1 - y) π^γ log(1 - π)

    The asymmetric loss with γ = focal_focus on both sides and no margin. Lin et al. also weight the sides
    by α = 0.25 and 0.75, for detection, where absent boxes outnumber present ones by thousands; here both
    weights are 1, as in the comparison with the asymmetric loss.
    """
    checked = check_inputs(targets, {"logits": output.logits})
    loss = asymmetric_loss(
        output.logits,
        checked,
        positive_focus=options.focal_focus,
        negative_focus=options.focal_focus,
        probability_margin=0,
        num_images=images_per_process(checked),
    )
    return LossTerms(loss, {"classification": loss})


ASL = Method(AslOptions, LinearHead, asl_loss)
BCE = Method(BceOptions, LinearHead, bce_loss)
FOCAL = Method(FocalOptions, LinearHead, focal_loss)
