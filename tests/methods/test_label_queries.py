"""Query2Label: every label scored by its own weights, from queries that see places."""

from __future__ import annotations

import torch

from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.methods.layers import label_logits
from kmcl.methods.q2l import LabelQueriesHead
from kmcl.options.methods import Q2LOptions


def test_logits_equal_loops():
    features, weights = torch.randn(2, 3, 4), torch.randn(3, 4)
    biases = torch.randn(3)
    logits = label_logits(features, weights, biases)
    for image in range(2):
        for label in range(3):
            expected = sum(features[image, label, d] * weights[label, d] for d in range(4)) + biases[label]
            torch.testing.assert_close(logits[image, label], expected)


@torch.no_grad()
def test_head_is_its_layers_in_order():
    encoder = build_encoder("test_resnet", image_size=64)
    head = LabelQueriesHead(encoder, 3, Q2LOptions(decoder_width=16, decoder_layers=3)).eval()
    assert len(head.layers) == 3
    spatial = torch.randn(2, 4, encoder.spatial_dim)
    queries = torch.stack([head.queries, head.queries])
    rows, columns = torch.tensor([[0.0], [0.0], [1.0], [1.0]]), torch.tensor([[0.0], [1.0], [0.0], [1.0]])
    scales = torch.tensor([1.0, 10.0, 100.0, 1000.0])
    places = [f(at / scales) for at in (rows, columns) for f in (torch.sin, torch.cos)]
    positions = torch.cat(places, dim=1)
    tokens = head.encoder(head.tokens(spatial) + positions, head.tokens(spatial), positions)
    for layer in head.layers:
        queries = layer(queries, tokens, positions)
    expected = label_logits(queries, head.weights, head.biases)
    torch.testing.assert_close(head(EncoderFeatures(spatial.mean(dim=1), spatial)).logits, expected)


@torch.no_grad()
def test_queries_see_where_things_are():
    """Without positions, attention could not tell an image from the same one with its places exchanged."""
    encoder = build_encoder("test_resnet", image_size=64)
    head = LabelQueriesHead(encoder, 3, Q2LOptions(decoder_width=16)).eval()
    spatial = torch.randn(2, 4, encoder.spatial_dim)
    logits, exchanged = (head(EncoderFeatures(s.mean(dim=1), s)).logits for s in (spatial, spatial.flip(1)))
    assert (logits - exchanged).abs().max() > 1e-3
