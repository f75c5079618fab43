"""Query2Label: each label has a query that attends to the image (Liu et al., 2021).

Its paper trains with a simplified asymmetric loss (γ- = 2, no margin), here with that of all rivals.
"""

from __future__ import annotations

import torch
from torch import nn

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.methods.interface import Method
from kmcl.methods.layers import AttentionLayer, grid_positions, label_logits
from kmcl.methods.linear import asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import Q2LOptions

FEEDFORWARD_RATIO = 4
"""Width of the feed-forward networks over the decoder's: 8192 to 2048 in the paper."""


class LabelQueriesHead(nn.Module):
    """Learned queries, one per label, refined by layers of attention to each other and to the positions.

    One layer of attention among the positions comes before. `decoder_width` takes the place of the paper's
    width, which is the encoder's (2048 for its ResNet-101), and there are 8 attention heads instead of its 4.
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: Q2LOptions) -> None:
        super().__init__()
        width = options.decoder_width
        self.tokens = nn.Linear(encoder.spatial_dim, width)
        self.encoder = AttentionLayer(width, FEEDFORWARD_RATIO * width, self_attention=False)
        self.queries = nn.Parameter(torch.randn(num_labels, width))
        self.layers = nn.ModuleList(
            AttentionLayer(width, FEEDFORWARD_RATIO * width, self_attention=True)
            for _ in range(options.decoder_layers)
        )
        self.weights = nn.Parameter(torch.empty(num_labels, width))
        self.biases = nn.Parameter(torch.zeros(num_labels))
        nn.init.uniform_(self.weights, -(width**-0.5), width**-0.5)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        tokens = self.tokens(encoded.spatial)
        positions = grid_positions(tokens.shape[1], tokens.shape[2], tokens)
        tokens = self.encoder(tokens + positions, tokens, positions)
        label_features = self.queries.repeat(tokens.shape[0], 1, 1)
        for layer in self.layers:
            label_features = layer(label_features, tokens, positions)
        return HeadOutput(label_logits(label_features, self.weights, self.biases), encoded.pooled, None)


METHOD = Method(Q2LOptions, LabelQueriesHead, asl_loss)
