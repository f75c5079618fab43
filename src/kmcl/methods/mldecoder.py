"""ML-Decoder: a few queries attend to the image and each scores a group of labels (Ridnik et al., 2021).

Its paper trains with the asymmetric loss, as here.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.methods.interface import Method
from kmcl.methods.layers import AttentionLayer
from kmcl.methods.linear import asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import MLDecoderOptions
from kmcl.shapes import Float

FEEDFORWARD_RATIO = 8 / 3
"""Width of the feed-forward network over the decoder's: 2048 to 768 in the paper."""


def group_logits(
    queries: Float[Tensor, "B G W"],
    weights: Float[Tensor, "G W P"],
    biases: Float[Tensor, " L"],
) -> Float[Tensor, "B L"]:
    """The group fully-connected layer: query g scores the labels g·P to g·P + P - 1.

        logit_k = q_⌊k/P⌋ · w_{⌊k/P⌋, k mod P} + b_k

    P labels per group; outputs beyond L labels are dropped.
    """
    logits = torch.einsum("bgw,gwp->bgp", queries, weights).flatten(1)
    return logits[:, : len(biases)] + biases


class GroupDecoderHead(nn.Module):
    """One layer of attention from G fixed queries to the positions, without attention among queries.

    The queries are random and not learned: the layers that read them learn instead. There are at most
    `decoder_groups` of them, so that the cost stays bounded for thousands of labels.
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: MLDecoderOptions) -> None:
        super().__init__()
        width = options.decoder_width
        per_group = -(-num_labels // options.decoder_groups)
        num_groups = -(-num_labels // per_group)
        self.tokens = nn.Sequential(nn.Linear(encoder.spatial_dim, width), nn.ReLU())
        self.register_buffer("queries", torch.randn(num_groups, width))
        self.query_norm = nn.LayerNorm(width)
        self.layer = AttentionLayer(width, round(FEEDFORWARD_RATIO * width), self_attention=False)
        self.group_weights = nn.Parameter(torch.empty(num_groups, width, per_group))
        self.biases = nn.Parameter(torch.zeros(num_labels))
        nn.init.normal_(self.group_weights, std=(2 / (width + per_group)) ** 0.5)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        queries: Tensor = self.queries  # type: ignore[assignment]
        started = self.query_norm(queries).expand(encoded.spatial.shape[0], -1, -1)
        decoded = self.layer(started, self.tokens(encoded.spatial))
        return HeadOutput(group_logits(decoded, self.group_weights, self.biases), encoded.pooled, None)


METHOD = Method(MLDecoderOptions, GroupDecoderHead, asl_loss)
