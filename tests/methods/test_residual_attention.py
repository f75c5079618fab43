"""CSRA's pooling against loops, and its two limits."""

from __future__ import annotations

import math

import pytest
import torch

from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.methods.csra import ResidualAttentionHead, attention_temperatures, residual_attention
from kmcl.options.methods import CsraOptions


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_pooling_equals_loops(temperature):
    scores = torch.randn(3, 5, 2, dtype=torch.float64)
    pooled = residual_attention(scores, temperature, 0.3)
    for image in range(3):
        for label in range(2):
            weights = [math.exp(temperature * scores[image, t, label]) for t in range(5)]
            attended = sum(w * scores[image, t, label].item() for t, w in enumerate(weights)) / sum(weights)
            mean = sum(scores[image, t, label].item() for t in range(5)) / 5
            assert pooled[image, label].item() == pytest.approx(mean + 0.3 * attended)


def test_attention_goes_from_the_mean_to_the_maximum():
    scores = torch.randn(3, 5, 2, dtype=torch.float64)
    mean, largest = scores.mean(dim=1), scores.amax(dim=1)
    torch.testing.assert_close(residual_attention(scores, 0.0, 0.5), 1.5 * mean)
    torch.testing.assert_close(residual_attention(scores, math.inf, 0.5), mean + 0.5 * largest)
    torch.testing.assert_close(residual_attention(scores, 1e4, 0.5), mean + 0.5 * largest)


def test_temperatures_are_the_authors():
    assert attention_temperatures(1) == (1,)
    assert attention_temperatures(2) == (1, math.inf)
    assert attention_temperatures(4) == (1, 2, 4, math.inf)
    assert attention_temperatures(6) == (1, 2, 3, 4, 5, math.inf)
    assert attention_temperatures(8) == (1, 2, 3, 4, 5, 6, 7, math.inf)


def test_heads_add_up_and_the_length_of_classifiers_does_not_matter():
    encoder = build_encoder("test_resnet", image_size=64)
    options = CsraOptions(attention_heads=3, residual_weight=0.2)
    head = ResidualAttentionHead(encoder, 2, options).double()
    spatial = torch.randn(2, 4, encoder.spatial_dim, dtype=torch.float64)
    encoded = EncoderFeatures(spatial.mean(dim=1), spatial)
    expected = torch.zeros(2, 2, dtype=torch.float64)
    for classifier, temperature in zip(head.classifiers, (1, 2, math.inf), strict=True):
        unit = classifier / classifier.norm(dim=1, keepdim=True)
        expected += residual_attention(spatial @ unit.T, temperature, 0.2)
    torch.testing.assert_close(head(encoded).logits, expected)
    with torch.no_grad():
        head.classifiers.mul_(7)
    torch.testing.assert_close(head(encoded).logits, expected)
