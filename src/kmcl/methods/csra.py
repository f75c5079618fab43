"""CSRA: class-specific residual attention (Zhu and Wu, ICCV 2021).

Its paper trains with binary cross-entropy; here with the asymmetric loss, like every rival.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.methods.interface import Method
from kmcl.methods.linear import asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import CsraOptions
from kmcl.shapes import Float


def residual_attention(
    scores: Float[Tensor, "B T L"], temperature: float, residual_weight: float
) -> Float[Tensor, "B L"]:
    """A label's mean score over positions, plus its attention-weighted mean score.

        logit_k = 1/T Σ_t s_tk + λ Σ_t a_tk s_tk,   a_tk = softmax_t(temperature · s_tk)

    s_tk: score of label k at position t. λ: residual_weight. At infinite temperature all attention is on the
    best position, and the second term is λ max_t s_tk.
    """
    if math.isinf(temperature):
        attended = scores.amax(dim=1)
    else:
        attended = ((temperature * scores).softmax(dim=1) * scores).sum(dim=1)
    return scores.mean(dim=1) + residual_weight * attended


def attention_temperatures(num_heads: int) -> tuple[float, ...]:
    """1 for one head; otherwise infinity for the last: 1, 2, 4, ∞ for four and 1, 2, 3, 4, 5, ∞ for six.

    As in the authors' code: doubling up to four heads, counting beyond.
    """
    if num_heads == 1:
        return (1.0,)
    finite = range(num_heads - 1)
    return (*(2.0**step if num_heads <= 4 else 1.0 + step for step in finite), math.inf)


class ResidualAttentionHead(nn.Module):
    """Each head scores every position with its own classifiers and attends with its own temperature.

    The heads' logits are added. Classifiers have no bias and norm 1: doubling their norm would be the same as
    doubling the temperature.
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: CsraOptions) -> None:
        super().__init__()
        self.residual_weight = options.residual_weight
        self.temperatures = attention_temperatures(options.attention_heads)
        self.classifiers = nn.Parameter(
            torch.randn(len(self.temperatures), num_labels, encoder.spatial_dim) / encoder.spatial_dim**0.5
        )

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        classifiers = functional.normalize(self.classifiers, dim=2)
        logits = torch.stack(
            [
                residual_attention(encoded.spatial @ classifier.T, temperature, self.residual_weight)
                for classifier, temperature in zip(classifiers, self.temperatures, strict=True)
            ]
        ).sum(dim=0)
        return HeadOutput(logits, encoded.pooled, None)


METHOD = Method(CsraOptions, ResidualAttentionHead, asl_loss)
