"""ADD-GCN: a graph over the labels, computed for each image (Ye et al., ECCV 2020).

Its paper trains with binary cross-entropy; here with the asymmetric loss, like every rival.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.methods.interface import Method
from kmcl.methods.layers import (
    LEAK,
    attended_label_features,
    graph_convolution,
    graph_weight,
    image_graph,
    label_logits,
)
from kmcl.methods.linear import asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import AddGCNOptions


class DynamicGraphHead(nn.Module):
    """Label features from a map of activations, a graph shared by all images, then a graph per image.

        H = V + LReLU(A_s V W_s),   Z = V + LReLU(A_d H W_d),   logit_k = (w_k · z_k + b_k + max_t s_tk) / 2

    V: label features. A_s: learned. A_d: computed from H and its projected mean over labels. s_tk:
    activations. The authors' code also normalises that mean over the batch, and applies the nonlinearity to
    each product before its weights too.
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: AddGCNOptions) -> None:
        super().__init__()
        width = options.graph_width
        self.activations = nn.Linear(encoder.spatial_dim, num_labels)
        self.positions = nn.Linear(encoder.spatial_dim, width)
        self.static_graph = graph_weight(num_labels, num_labels)
        self.static_weight = graph_weight(width, width)
        self.image_feature = nn.Linear(width, width)
        self.dynamic_graph = nn.Linear(2 * width, num_labels, bias=False)
        self.dynamic_weight = graph_weight(width, width)
        self.weights = nn.Parameter(torch.empty(num_labels, width).uniform_(-(width**-0.5), width**-0.5))
        self.biases = nn.Parameter(torch.zeros(num_labels))

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        scores = self.activations(encoded.spatial)
        label_features = attended_label_features(scores, self.positions(encoded.spatial))
        static = graph_convolution(self.static_graph, label_features, self.static_weight)
        nodes = label_features + functional.leaky_relu(static, LEAK)
        graph = image_graph(nodes, self.image_feature(nodes.mean(dim=1)), self.dynamic_graph.weight)
        dynamic = graph_convolution(graph, nodes, self.dynamic_weight)
        nodes = label_features + functional.leaky_relu(dynamic, LEAK)
        logits = (label_logits(nodes, self.weights, self.biases) + scores.amax(dim=1)) / 2
        return HeadOutput(logits, encoded.pooled, None)


METHOD = Method(AddGCNOptions, DynamicGraphHead, asl_loss)
