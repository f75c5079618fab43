"""Label queries: each label attends to the feature map and scores the result."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.methods.heads.label_queries import label_logits
from kmcl.methods.heads.transformer import AttentionLayer
from kmcl.shapes import Float

FEEDFORWARD_RATIO = 8 / 3


class QueryBranch(nn.Module):
    """A learned query for each label attends to the positions once; the label's own weights score the result.

        q_k = layer(norm(query_k), relu(W_t x + b_t))        logit_k = w_k · q_k + b_k

    with x the features of the positions and `layer` as in ML-Decoder, without attention among queries.
    """

    def __init__(self, spatial_dim: int, num_labels: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Sequential(nn.Linear(spatial_dim, width), nn.ReLU())
        self.queries = nn.Parameter(torch.randn(num_labels, width))
        self.query_norm = nn.LayerNorm(width)
        self.layer = AttentionLayer(width, round(FEEDFORWARD_RATIO * width), self_attention=False)
        self.weights = nn.Parameter(torch.empty(num_labels, width))
        self.biases = nn.Parameter(torch.zeros(num_labels))
        nn.init.normal_(self.weights, std=(2 / (width + 1)) ** 0.5)

    def forward(self, spatial: Float[Tensor, "B T S"]) -> Float[Tensor, "B L"]:
        started = self.query_norm(self.queries).expand(spatial.shape[0], -1, -1)
        return label_logits(self.layer(started, self.tokens(spatial)), self.weights, self.biases)
