"""A linear head on the pooled features, with the asymmetric loss or binary cross-entropy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.losses import asymmetric_loss
from kmcl.losses.distributed import images_per_process
from kmcl.methods.interface import LossTerms, MethodOptions
from kmcl.models.classifier import HeadOutput
from kmcl.models.encoder import Encoder, EncoderFeatures


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


def asl_loss(output: HeadOutput, targets: Tensor, options: MethodOptions) -> LossTerms:
    """Eq. 6 alone."""
    settings = options.objective
    loss = asymmetric_loss(
        output.logits,
        targets,
        positive_focus=settings.positive_focus,
        negative_focus=settings.negative_focus,
        probability_margin=settings.probability_margin,
        num_images=images_per_process(targets),
    )
    return LossTerms(loss, {"classification": loss})


def bce_loss(output: HeadOutput, targets: Tensor, options: MethodOptions) -> LossTerms:
    """Binary cross-entropy, summed over labels like Eq. 6: the asymmetric loss without focus and margin."""
    loss = asymmetric_loss(
        output.logits,
        targets,
        negative_focus=0,
        probability_margin=0,
        num_images=images_per_process(targets),
    )
    return LossTerms(loss, {"classification": loss})
