"""ML-GCN, ADD-GCN and TDRG: the operations of their graphs against loops."""

from __future__ import annotations

import math

import pytest
import torch

from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.losses import asymmetric_loss
from kmcl.methods import find_method
from kmcl.methods.addgcn import DynamicGraphHead
from kmcl.methods.layers import attended_label_features, graph_convolution, image_graph
from kmcl.methods.mlgcn import GraphClassifierHead
from kmcl.methods.output import HeadOutput
from kmcl.methods.tdrg import DualRelationHead, half_resolution
from kmcl.options.methods import AddGCNOptions, MLGCNOptions, TDRGOptions
from random_inputs import make_targets

TDRG = TDRGOptions(graph_width=5, decoder_width=8)
OPTIONS = {
    GraphClassifierHead: MLGCNOptions(graph_width=5, label_embedding_dim=4),
    DynamicGraphHead: AddGCNOptions(graph_width=5),
    DualRelationHead: TDRG,
}


def make_features(num_positions: int = 4) -> EncoderFeatures:
    width = build_encoder("test_resnet", image_size=64).spatial_dim
    spatial = torch.randn(2, num_positions, width, dtype=torch.float64)
    return EncoderFeatures(spatial.mean(dim=1), spatial)


def make_head(factory):
    torch.manual_seed(0)
    return factory(build_encoder("test_resnet", image_size=64), 3, OPTIONS[factory]).double().eval()


def leaky(vector):
    return torch.stack([value if value > 0 else 0.2 * value for value in vector])


def test_graph_convolution_equals_loops():
    graph, nodes, weight = torch.rand(3, 3), torch.randn(3, 4), torch.randn(4, 5)
    result = graph_convolution(graph, nodes, weight)
    for k in range(3):
        heard = sum(graph[k, j] * nodes[j] for j in range(3))
        torch.testing.assert_close(result[k], heard @ weight)


@torch.no_grad()
def test_graph_classifiers_equal_loops():
    head, encoded = make_head(GraphClassifierHead), make_features()
    head.graph.copy_(torch.tensor([[0.8, 0.2, 0.0], [0.1, 0.8, 0.1], [0.0, 0.0, 1.0]]))
    hidden = [
        leaky(sum(head.graph[k, j] * (head.label_embeddings[j] @ head.first_weight) for j in range(3)))
        for k in range(3)
    ]
    logits = head(encoded).logits
    for image in range(2):
        largest = torch.stack([column.max() for column in encoded.spatial[image].T])
        for k in range(3):
            classifier = sum(head.graph[k, j] * (hidden[j] @ head.second_weight) for j in range(3))
            torch.testing.assert_close(logits[image, k], classifier @ largest)


def test_attended_label_features_equal_loops():
    scores, positions = torch.randn(2, 4, 3), torch.randn(2, 4, 5)
    features = attended_label_features(scores, positions)
    for image in range(2):
        for k in range(3):
            weights = [1 / (1 + math.exp(-scores[image, t, k])) for t in range(4)]
            expected = sum(w * positions[image, t] for t, w in enumerate(weights)) / 4
            torch.testing.assert_close(features[image, k], expected)


def test_image_graph_equals_loops():
    label_features, image_feature, weight = torch.randn(2, 3, 5), torch.randn(2, 4), torch.randn(3, 9)
    graph = image_graph(label_features, image_feature, weight)
    for image in range(2):
        for k in range(3):
            for j in range(3):
                joint = torch.cat([label_features[image, k], image_feature[image]])
                torch.testing.assert_close(graph[image, k, j], (weight[j] @ joint).sigmoid())


@torch.no_grad()
def test_dynamic_graph_head_follows_its_formula():
    head, encoded = make_head(DynamicGraphHead), make_features()
    logits = head(encoded).logits
    for image in range(2):
        spatial = encoded.spatial[image]
        scores = torch.stack([head.activations(position) for position in spatial])
        positions = head.positions(spatial)
        nodes = torch.stack([(scores[:, k].sigmoid().unsqueeze(1) * positions).mean(dim=0) for k in range(3)])
        static = torch.stack([leaky(row) for row in head.static_graph @ nodes @ head.static_weight])
        label_features, nodes = nodes, nodes + static
        whole = head.image_feature(nodes.mean(dim=0))
        graph = torch.stack([head.dynamic_graph(torch.cat([node, whole])).sigmoid() for node in nodes])
        for k in range(3):
            node = label_features[k] + leaky(graph[k] @ nodes @ head.dynamic_weight)
            expected = (head.weights[k] @ node + head.biases[k] + scores[:, k].max()) / 2
            torch.testing.assert_close(logits[image, k], expected)


def test_half_resolution_averages_neighbours():
    tokens = torch.arange(9.0).view(1, 9, 1)  # rows 0 1 2, 3 4 5, 6 7 8
    torch.testing.assert_close(half_resolution(tokens), torch.tensor([[[2.0], [3.5], [6.5], [8.0]]]))
    torch.testing.assert_close(half_resolution(tokens[:, :1]), tokens[:, :1])
    torch.testing.assert_close(half_resolution(tokens[:, :3]), torch.ones(1, 1, 1))


@torch.no_grad()
def test_dual_relation_head_follows_its_formula():
    head, encoded = make_head(DualRelationHead), make_features()
    output = head(encoded)
    structure = head.structure(encoded.spatial)
    assert structure.shape == (2, 2 * TDRG.decoder_width)
    structural, semantic, constraint = output.branches
    torch.testing.assert_close(output.logits, 0.7 * structural + 0.3 * semantic)
    for image in range(2):
        spatial = encoded.spatial[image]
        scores, positions = head.activations(spatial), head.positions(spatial)
        nodes = torch.stack([(scores[:, k].sigmoid().unsqueeze(1) * positions).mean(dim=0) for k in range(3)])
        for k in range(3):
            row = head.graph(torch.cat([nodes[k], structure[image]])).sigmoid()
            node = nodes[k] + leaky(row @ nodes @ head.graph_weight)
            torch.testing.assert_close(semantic[image, k], head.weights[k] @ node + head.biases[k])
            torch.testing.assert_close(constraint[image, k], scores[:, k].max())
        torch.testing.assert_close(structural[image], head.structural_logits(structure[image]))


@torch.no_grad()
def test_scales_attend_to_each_other_and_keep_their_maxima():
    head, encoded = make_head(DualRelationHead), make_features(9)
    branch = head.structure
    fine = branch.tokens(encoded.spatial)
    coarse = half_resolution(fine)
    steps = {9: 3, 4: 2}
    placed = []
    for tokens, scale in ((fine, branch.scales[0]), (coarse, branch.scales[1])):
        places = [divmod(n, steps[tokens.shape[1]]) for n in range(tokens.shape[1])]
        waves = [
            [f(at / s) for at in place for f in (math.sin, math.cos) for s in (1, 100)] for place in places
        ]
        placed.append(tokens + torch.tensor(waves, dtype=torch.float64) + scale)
    tokens = torch.cat(placed, dim=1)
    for layer in branch.layers:
        tokens = layer(tokens, tokens)
    expected = torch.cat([tokens[:, :9].amax(dim=1), tokens[:, 9:].amax(dim=1)], dim=1)
    torch.testing.assert_close(branch(encoded.spatial), expected, atol=1e-6, rtol=1e-6)


def test_each_branch_of_dual_relation_is_trained():
    joint, *branches = (torch.randn(4, 3) for _ in range(4))
    targets = make_targets(4, 3)
    output = HeadOutput(joint, joint, None, tuple(branches))
    terms = find_method("tdrg").compute_loss(output, targets, TDRG)
    expected = [asymmetric_loss(logits, targets) for logits in (joint, *branches)]
    assert list(terms.named) == ["joint", "structural", "semantic", "constraint"]
    torch.testing.assert_close(list(terms.named.values()), expected)
    torch.testing.assert_close(terms.total, sum(expected))
    with pytest.raises(ValueError, match="three branches; got 0"):
        find_method("tdrg").compute_loss(HeadOutput(joint, joint, None), targets, TDRG)


def test_the_graph_of_dual_relation_does_not_teach_the_structural_branch():
    head = make_head(DualRelationHead)
    head(make_features()).branches[1].sum().backward()
    assert all(parameter.grad is None for parameter in head.structure.parameters())
    assert head.graph.weight.grad.abs().sum() > 0
