"""The counts of the heads that read positions, against counts by hand."""

from __future__ import annotations

import pytest
import torch

from kmcl.encoders.timm_encoder import build_encoder
from kmcl.errors import InputError
from kmcl.methods import METHODS, find_method
from kmcl.models.complexity import measure_complexity
from kmcl.models.method_complexity import measure_method, measure_methods
from kmcl.options.methods import AslOptions, CsraOptions, MethodOptions, MLDecoderOptions
from small_options import small_options

NUM_LABELS = 5


@pytest.fixture(scope="module")
def encoder():
    return build_encoder("test_resnet", image_size=64)


@pytest.mark.parametrize("method", METHODS)
def test_the_count_is_that_of_a_real_model(method, encoder):
    options = small_options(method)
    head = find_method(method).build_head(encoder, NUM_LABELS, options)
    real = sum(p.numel() for p in encoder.parameters()) + sum(p.numel() for p in head.parameters())
    counted = measure_method("test_resnet", options, NUM_LABELS, 64)
    assert counted.parameters == real
    assert counted == measure_complexity(encoder, head, reads="features")


def over_the_encoder(options: MethodOptions) -> tuple[int, int]:
    bare = measure_complexity(build_encoder("test_resnet", image_size=64), torch.nn.Identity())
    counted = measure_method("test_resnet", options, NUM_LABELS, 64)
    return counted.parameters - bare.parameters, counted.macs - bare.macs


def test_residual_attention_costs_its_classifiers_at_every_position(encoder):
    num_positions = 2 * 2
    weights = 3 * NUM_LABELS * encoder.spatial_dim
    assert over_the_encoder(CsraOptions(attention_heads=3)) == (weights, weights * num_positions)


def test_group_decoder_by_hand(encoder):
    width, groups, per_group, num_positions = 24, 3, 2, 4
    parameters, macs = over_the_encoder(MLDecoderOptions(decoder_width=width, decoder_groups=3))
    tokens = encoder.spatial_dim * width
    attention, feedforward, last = 4 * width**2, 2 * width * 64, groups * width * per_group
    biases = width + 4 * width + (64 + width) + NUM_LABELS + 3 * 2 * width  # of norms: scales too
    assert parameters == tokens + attention + feedforward + last + biases
    keys_and_values, queries_and_output = 2 * width**2, 2 * width**2
    assert macs == (
        num_positions * (tokens + keys_and_values)
        + groups * (queries_and_output + feedforward)
        + 2 * groups * num_positions * width
        + last
    )


def test_all_methods_or_one():
    names = [measured.method for measured in measure_methods("test_resnet", 3, 64)]
    assert names == ["kmcl"] * 4 + [name for name in METHODS if name != "kmcl"]
    only = measure_methods("test_resnet", 3, 64, kernel="mahalanobis")
    assert [(measured.method, measured.kernel) for measured in only] == [("kmcl", "mahalanobis")]
    with pytest.raises(InputError, match=r"kernel must be one of isotropic.*got 'cubic'"):
        measure_methods("test_resnet", 3, kernel="cubic")
    with pytest.raises(InputError, match="method must be one of kmcl"):
        measure_methods("test_resnet", 3, method="cubic")
    with pytest.raises(InputError, match="at least 1; got 0"):
        measure_method("test_resnet", AslOptions(), 0)
