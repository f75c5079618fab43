"""The asymmetric angular margin loss and its cosine classifiers."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional

from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.kernels.targets import read_targets
from kmcl.methods.aam import AngularHead, aam_loss, angular_margin_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import AamOptions
from random_inputs import make_targets

OPTIONS = [
    AamOptions(),
    AamOptions(angular_scale=23, angular_margin=0.2, positive_share=0.7, positive_focus=0.5),
    AamOptions(probability_margin=0, negative_focus=4, angular_margin=0.1),
]


def loop(logits, targets, options):
    """The formula, one image and one label at a time."""
    total, images = 0.0, 0
    for row, known in zip(logits.tolist(), targets.tolist(), strict=True):
        images += any(y != -1 for y in known)
        for z, y in zip(row, known, strict=True):
            cosine = z / options.angular_scale
            present = 1 / (1 + math.exp(-options.angular_scale * (cosine - options.angular_margin)))
            absent = 1 / (1 + math.exp(options.angular_scale * (cosine + options.angular_margin)))
            absent = min(absent + options.probability_margin, 1)
            if y == 1:
                total -= options.positive_share * absent**options.positive_focus * math.log(present)
            elif y == 0:
                total -= (1 - options.positive_share) * present**options.negative_focus * math.log(absent)
    return total / options.angular_scale / images


@pytest.mark.parametrize("options", OPTIONS)
def test_equals_the_loop(options):
    logits = 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = make_targets(6, 5, unknown=0.2)
    terms = aam_loss(HeadOutput(logits, logits, None), targets, options)
    assert terms.total.item() == pytest.approx(loop(logits, targets, options), rel=1e-12)


def test_without_margins_and_focus_it_is_binary_cross_entropy():
    options = AamOptions(probability_margin=0, negative_focus=0, positive_share=0.5, angular_scale=3)
    logits, targets = 5 * torch.randn(4, 6, dtype=torch.float64), make_targets(4, 6)
    expected = functional.binary_cross_entropy_with_logits(logits, targets.double(), reduction="sum") / 4
    actual = angular_margin_loss(logits, read_targets(targets), options)
    torch.testing.assert_close(actual, expected / (2 * 3))


@pytest.mark.parametrize("options", OPTIONS)
def test_gradients(options):
    logits = 2 * torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = read_targets(make_targets(3, 4, unknown=0.2))
    assert torch.autograd.gradcheck(
        lambda z: angular_margin_loss(z, targets, options), logits.requires_grad_()
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_and_extreme_logits_stay_finite(dtype):
    logits = torch.tensor([[80.0, -80.0], [-80.0, 80.0]], dtype=dtype, requires_grad=True)
    targets = torch.tensor([[0, 1], [1, 0]])
    loss = aam_loss(HeadOutput(logits, logits, None), targets, AamOptions(probability_margin=0)).total
    loss.backward()
    assert loss.dtype == torch.float32
    assert bool(loss.isfinite())
    assert bool(logits.grad.isfinite().all())


def test_images_without_known_labels_cost_nothing_and_keep_the_gradient():
    logits = torch.randn(2, 3, requires_grad=True)
    loss = aam_loss(HeadOutput(logits, logits, None), torch.full((2, 3), -1), AamOptions()).total
    loss.backward()
    assert loss.item() == 0
    assert not logits.grad.any()


def test_lengths_do_not_matter_and_logits_stay_within_the_scale():
    encoder = build_encoder("test_resnet", image_size=64)
    head = AngularHead(encoder, 4, AamOptions(angular_scale=5)).double()
    pooled = torch.randn(3, encoder.feature_dim, dtype=torch.float64)
    encoded, longer = EncoderFeatures(pooled, pooled[:, None]), EncoderFeatures(7 * pooled, pooled[:, None])
    logits = head(encoded).logits
    expected = 5 * functional.cosine_similarity(pooled[:, None], head.directions[None], dim=2)
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(head(longer).logits, logits)
    with torch.no_grad():
        head.directions.mul_(3)
    torch.testing.assert_close(head(encoded).logits, logits)
