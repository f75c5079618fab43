"""TDRG: attention over scales guides a graph over the labels (Zhao et al., ICCV 2021).

Its paper trains each branch with binary cross-entropy; here with the asymmetric loss, like every rival. It
reads feature maps of several stages of a ResNet; here the scales are the last map and the same map at half
the resolution, since an encoder gives one map. Its nodes carry a second feature, of the attended tokens, and
its constraint is the mean of the highest twentieth of the activations; here nodes have one feature, and the
constraint is the maximum. The authors' sizes: --decoder-layers 3 --decoder-width 512 --graph-width 1024.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.losses.arguments import check_inputs
from kmcl.methods.interface import LossTerms, Method
from kmcl.methods.layers import (
    LEAK,
    AttentionLayer,
    attended_label_features,
    graph_convolution,
    graph_weight,
    grid_positions,
    image_graph,
    label_logits,
)
from kmcl.methods.linear import asl_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import TDRGOptions
from kmcl.shapes import Float

FEEDFORWARD_RATIO = 4
STRUCTURAL_SHARE = 0.7
"""Weight of the structural branch in the prediction; the semantic branch has the rest."""


def half_resolution(tokens: Float[Tensor, "B T W"]) -> Float[Tensor, "B U W"]:
    """Means over 2 x 2 neighbours of a square grid, row by row; at an odd edge over those that exist.

    Tokens that form no square grid, which no encoder here gives, are averaged to one.
    """
    side = math.isqrt(tokens.shape[1])
    if side**2 != tokens.shape[1]:
        return tokens.mean(dim=1, keepdim=True)
    grid = tokens.transpose(1, 2).reshape(tokens.shape[0], -1, side, side)
    return functional.avg_pool2d(grid, 2, ceil_mode=True).flatten(2).transpose(1, 2)


class StructuralBranch(nn.Module):
    """Tokens of both scales attend to each other; the maxima over each scale are concatenated."""

    def __init__(self, encoder: Encoder, options: TDRGOptions) -> None:
        super().__init__()
        width = options.decoder_width
        self.tokens = nn.Linear(encoder.spatial_dim, width)
        self.scales = nn.Parameter(0.02 * torch.randn(2, width))
        self.layers = nn.ModuleList(
            AttentionLayer(width, FEEDFORWARD_RATIO * width, self_attention=False)
            for _ in range(options.decoder_layers)
        )

    def forward(self, spatial: Float[Tensor, "B T S"]) -> Float[Tensor, "B V"]:
        fine = self.tokens(spatial)
        scales = [
            tokens + grid_positions(tokens.shape[1], tokens.shape[2], tokens) + scale
            for tokens, scale in zip((fine, half_resolution(fine)), self.scales, strict=True)
        ]
        tokens = torch.cat(scales, dim=1)
        for layer in self.layers:
            tokens = layer(tokens, tokens)
        num_fine = fine.shape[1]
        return torch.cat([tokens[:, :num_fine].amax(dim=1), tokens[:, num_fine:].amax(dim=1)], dim=1)


class DualRelationHead(nn.Module):
    """Logits of three branches; 0.7 of the first and 0.3 of the second are the prediction.

    structural: linear on the structural feature g, see `StructuralBranch`
    semantic:   w_k · z_k + b_k,   Z = V + LReLU(A V W),   A computed from V and g (without gradient to g)
    constraint: max_t s_tk, the activations that V is pooled with, supervised by their own loss
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: TDRGOptions) -> None:
        super().__init__()
        width = options.graph_width
        self.structure = StructuralBranch(encoder, options)
        self.structural_logits = nn.Linear(2 * options.decoder_width, num_labels)
        self.activations = nn.Linear(encoder.spatial_dim, num_labels)
        self.positions = nn.Linear(encoder.spatial_dim, width)
        self.graph = nn.Linear(width + 2 * options.decoder_width, num_labels, bias=False)
        self.graph_weight = graph_weight(width, width)
        self.weights = nn.Parameter(torch.empty(num_labels, width).uniform_(-(width**-0.5), width**-0.5))
        self.biases = nn.Parameter(torch.zeros(num_labels))

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        structure = self.structure(encoded.spatial)
        structural = self.structural_logits(structure)
        scores = self.activations(encoded.spatial)
        nodes = attended_label_features(scores, self.positions(encoded.spatial))
        graph = image_graph(nodes, structure.detach(), self.graph.weight)
        nodes = nodes + functional.leaky_relu(graph_convolution(graph, nodes, self.graph_weight), LEAK)
        semantic = label_logits(nodes, self.weights, self.biases)
        constraint = scores.amax(dim=1)
        logits = STRUCTURAL_SHARE * structural + (1 - STRUCTURAL_SHARE) * semantic
        return HeadOutput(logits, encoded.pooled, None, (structural, semantic, constraint))


def tdrg_loss(output: HeadOutput, targets: Tensor, options: TDRGOptions) -> LossTerms:
    """The sum of the losses of the prediction and of each of the three branches."""
    if len(output.branches) != 3:
        raise ValueError(f"the TDRG loss needs a head with three branches; got {len(output.branches)}")
    scored = (output.logits, *output.branches)
    names = ("logits", "branches[0]", "branches[1]", "branches[2]")
    checked = check_inputs(targets, dict(zip(names, scored, strict=True)))
    joint, structural, semantic, constraint = (
        asl_loss(output._replace(logits=logits), checked, options).total for logits in scored
    )
    named = {"joint": joint, "structural": structural, "semantic": semantic, "constraint": constraint}
    return LossTerms(joint + structural + semantic + constraint, named)


METHOD = Method(TDRGOptions, DualRelationHead, tdrg_loss)
