"""ML-Decoder: the group layer and the cross-attention against loops."""

from __future__ import annotations

import math

import pytest
import torch

from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.methods.layers import AttentionLayer, grid_positions
from kmcl.methods.mldecoder import GroupDecoderHead, group_logits
from kmcl.options.methods import MLDecoderOptions


def test_group_layer_equals_loops():
    queries = torch.randn(2, 3, 4, dtype=torch.float64)
    weights = torch.randn(3, 4, 3, dtype=torch.float64)
    biases = torch.randn(7, dtype=torch.float64)
    logits = group_logits(queries, weights, biases)
    assert logits.shape == (2, 7)
    for image in range(2):
        for label in range(7):
            group, place = divmod(label, 3)
            expected = sum(queries[image, group, d] * weights[group, d, place] for d in range(4))
            torch.testing.assert_close(logits[image, label], expected + biases[label])


@pytest.mark.parametrize(
    ("num_labels", "most", "groups", "per_group"),
    [(3, 100, 3, 1), (100, 100, 100, 1), (101, 100, 51, 2), (14, 5, 5, 3), (80, 1, 1, 80)],
)
def test_there_are_no_more_groups_than_asked_for(num_labels, most, groups, per_group):
    encoder = build_encoder("test_resnet", image_size=32)
    head = GroupDecoderHead(encoder, num_labels, MLDecoderOptions(decoder_width=8, decoder_groups=most))
    assert head.group_weights.shape == (groups, 8, per_group)
    spatial = torch.randn(2, 4, encoder.spatial_dim)
    assert head(EncoderFeatures(spatial.mean(dim=1), spatial)).logits.shape == (2, num_labels)


def test_queries_are_fixed_and_saved():
    head = GroupDecoderHead(build_encoder("test_resnet"), 4, MLDecoderOptions(decoder_width=8))
    assert "queries" not in dict(head.named_parameters())
    assert "queries" in head.state_dict()


def attend(attention: torch.nn.MultiheadAttention, query, keys, values):
    """Multi-head attention of one query, by loops over heads and tokens."""
    width = len(query)
    size = width // attention.num_heads
    parts = zip(attention.in_proj_weight.split(width), attention.in_proj_bias.split(width), strict=True)
    (q_weight, q_bias), (k_weight, k_bias), (v_weight, v_bias) = parts
    query = q_weight @ query + q_bias
    keys = [k_weight @ key + k_bias for key in keys]
    values = [v_weight @ value + v_bias for value in values]
    seen = []
    for head in range(attention.num_heads):
        part = slice(head * size, (head + 1) * size)
        exponents = [math.exp(query[part] @ key[part] / math.sqrt(size)) for key in keys]
        seen.append(sum(e / sum(exponents) * v[part] for e, v in zip(exponents, values, strict=True)))
    return attention.out_proj.weight @ torch.cat(seen) + attention.out_proj.bias


@torch.no_grad()
@pytest.mark.parametrize("self_attention", [False, True])
def test_attention_layer_equals_loops(self_attention):
    torch.manual_seed(0)
    layer = AttentionLayer(16, 24, self_attention=self_attention).double().eval()
    queries, tokens = torch.randn(1, 3, 16, dtype=torch.float64), torch.randn(1, 5, 16, dtype=torch.float64)
    positions = grid_positions(5, 16, tokens)
    result = layer(queries, tokens, positions)
    rows = list(queries[0])
    if self_attention:
        rows = [
            layer.self_attention_norm(row + attend(layer.self_attention, row, rows, rows)) for row in rows
        ]
    for n, row in enumerate(rows):
        seen = attend(layer.attention, row, tokens[0] + positions, tokens[0])
        row = layer.attention_norm(row + seen)
        row = layer.feedforward_norm(row + layer.feedforward(row))
        torch.testing.assert_close(result[0, n], row)


def test_positions_tell_row_and_column():
    positions = grid_positions(9, 8, torch.zeros(()))
    for index in range(9):
        row, column = divmod(index, 3)
        scales = (1, 100)
        expected = [f(at / s) for at in (row, column) for f in (math.sin, math.cos) for s in scales]
        torch.testing.assert_close(positions[index], torch.tensor(expected))
