"""Layers that several heads share: attention to tokens, graphs over the labels, a score for each label."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kmcl.options.methods import ATTENTION_HEADS
from kmcl.shapes import Float

DROPOUT = 0.1
LEAK = 0.2
"""Slope of the leaky rectifiers of the graph networks for negative values."""


class AttentionLayer(nn.Module):
    """Queries attend to tokens, then a feed-forward network is applied to each.

        q ← norm(q + self-attention(q))            with `self_attention`
        q ← norm(q + attention(q, tokens))
        q ← norm(q + feed-forward(q))

    In training, the second summand of each has dropout of 0.1.
    """

    def __init__(self, width: int, feedforward_width: int, *, self_attention: bool) -> None:
        super().__init__()
        heads = ATTENTION_HEADS
        self.self_attention = None
        if self_attention:
            self.self_attention = nn.MultiheadAttention(width, heads, dropout=DROPOUT, batch_first=True)
            self.self_attention_norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=DROPOUT, batch_first=True)
        self.attention_norm = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, feedforward_width),
            nn.ReLU(),
            nn.Dropout(DROPOUT),
            nn.Linear(feedforward_width, width),
        )
        self.feedforward_norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(
        self,
        queries: Float[Tensor, "B Q W"],
        tokens: Float[Tensor, "B T W"],
        positions: Float[Tensor, "T W"] | float = 0.0,
    ) -> Float[Tensor, "B Q W"]:
        """`positions` are added to the keys, not to the values."""
        if self.self_attention is not None:
            seen, _ = self.self_attention(queries, queries, queries, need_weights=False)
            queries = self.self_attention_norm(queries + self.dropout(seen))
        seen, _ = self.attention(queries, tokens + positions, tokens, need_weights=False)
        queries = self.attention_norm(queries + self.dropout(seen))
        result: Tensor = self.feedforward_norm(queries + self.dropout(self.feedforward(queries)))
        return result


def grid_positions(num_positions: int, width: int, like: Tensor) -> Float[Tensor, "T W"]:
    """Sines and cosines of row and column, for positions that run row by row over a square grid.

    The first half of the width encodes the row y, the second the column x: sin(y/s), cos(y/s) for scales s
    from 1 to 10,000. `like` gives device and dtype. `width` is a multiple of 4.
    """
    side = math.ceil(math.sqrt(num_positions))
    steps = torch.arange(num_positions, device=like.device)
    num_scales = width // 4
    scales = 10_000 ** (torch.arange(num_scales, device=like.device) / num_scales)
    row = (steps // side).unsqueeze(1) / scales
    column = (steps % side).unsqueeze(1) / scales
    return torch.cat([row.sin(), row.cos(), column.sin(), column.cos()], dim=1).to(like.dtype)


def label_logits(
    label_features: Float[Tensor, "B L W"], weights: Float[Tensor, "L W"], biases: Float[Tensor, " L"]
) -> Float[Tensor, "B L"]:
    """Each label scores its own feature with its own weights: logit_k = w_k · q_k + b_k."""
    return (label_features * weights).sum(dim=2) + biases


def graph_convolution(
    graph: Float[Tensor, "*B_or_none L L"], nodes: Float[Tensor, "*B L V"], weight: Float[Tensor, "V W"]
) -> Float[Tensor, "*B L W"]:
    """Each label's node becomes the sum of all nodes weighted by its row of the graph, transformed: A H W."""
    return graph @ (nodes @ weight)


def graph_weight(in_width: int, out_width: int) -> nn.Parameter:
    """Initial weights of a graph convolution, uniform within ±1/√out_width."""
    return nn.Parameter(torch.empty(in_width, out_width).uniform_(-(out_width**-0.5), out_width**-0.5))


def attended_label_features(
    scores: Float[Tensor, "B T L"], positions: Float[Tensor, "B T W"]
) -> Float[Tensor, "B L W"]:
    """A feature per label, pooled over the positions where its activation is high.

        v_k = 1/T Σ_t sigmoid(s_tk) x_t

    s_tk: score of label k at position t. x_t: feature there. The papers take the sum instead of the mean,
    which makes the scale of v_k depend on the image size.
    """
    return scores.sigmoid().transpose(1, 2) @ positions / positions.shape[1]


def image_graph(
    label_features: Float[Tensor, "B L W"],
    image_feature: Float[Tensor, "B V"],
    weight: Float[Tensor, "L W+V"],
) -> Float[Tensor, "B L L"]:
    """The graph of an image: edge weights from each label's own feature and that of the whole image.

    A_kj = sigmoid(w_j · [v_k; g])
    """
    width = label_features.shape[2]
    own, whole = label_features @ weight[:, :width].T, image_feature @ weight[:, width:].T
    return (own + whole.unsqueeze(1)).sigmoid()
