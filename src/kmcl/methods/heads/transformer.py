"""Transformer parts shared by the attention heads: tokens, positions, and one layer of attention."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kmcl.methods.options import ATTENTION_HEADS
from kmcl.shapes import Float

DROPOUT = 0.1


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
