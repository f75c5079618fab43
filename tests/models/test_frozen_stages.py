"""Frozen stages: the split encoder is the whole one, what is frozen stays, others are refused."""

from __future__ import annotations

import copy

import pytest
import torch

from kmcl.errors import InputError
from kmcl.models.encoder import Encoder, build_encoder
from kmcl.models.frozen_stages import digest_of

SPLITS = [
    ("tf_efficientnet_lite0", 64, 6, (192, 2, 2)),
    ("test_resnet", 32, 2, (48, 4, 4)),
    ("resnet18", 64, 3, (256, 4, 4)),
    ("resnet18", 64, 4, (512, 2, 2)),
    ("tresnet_m", 64, 3, (1024, 4, 4)),
    ("test_convnext", 32, 1, (24, 8, 8)),
    ("mobilenetv3_small_050", 64, 2, (16, 8, 8)),
    ("regnety_002", 64, 2, (56, 8, 8)),
    ("test_vit", 160, 3, (101, 64)),
]


def encoder_with_statistics(name: str, image_size: int) -> Encoder:
    """Untrained, but with norms whose running statistics differ from those of a batch."""
    torch.manual_seed(0)
    encoder = build_encoder(name, image_size=image_size)
    for part in encoder.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
    return encoder


@pytest.mark.parametrize(("name", "image_size", "num_stages", "shape"), SPLITS)
def test_frozen_stages_then_the_rest_are_the_whole(name, image_size, num_stages, shape):
    encoder = encoder_with_statistics(name, image_size).eval()
    images = torch.randn(3, 3, image_size, image_size)
    with torch.no_grad():
        whole = encoder(images)
        encoder.freeze(num_stages)
        maps = encoder.frozen_maps(images)
        split = encoder.encode_maps(maps)
        again = encoder(images)
    assert maps.shape[1:] == shape
    for expected, found, after in zip(whole, split, again, strict=True):
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(after, expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "image_size", "num_stages"), [row[:3] for row in SPLITS if "test_" in row[0]]
)
def test_training_leaves_frozen_stages_as_they_are_and_changes_the_rest(name, image_size, num_stages):
    encoder = encoder_with_statistics(name, image_size)
    encoder.freeze(num_stages)
    encoder.train()
    before = copy.deepcopy(encoder.state_dict())
    optimiser = torch.optim.SGD([p for p in encoder.parameters() if p.requires_grad], lr=0.1)
    encoder(torch.randn(4, 3, image_size, image_size)).pooled.square().sum().backward()
    optimiser.step()
    frozen = {f"backbone.{tensor}" for tensor in encoder.frozen_tensors()}
    changed = {key for key, value in encoder.state_dict().items() if not torch.equal(value, before[key])}
    trained = {key for key, parameter in encoder.named_parameters() if parameter.requires_grad}
    assert frozen
    assert not changed & frozen
    assert not trained & frozen
    assert changed & trained


def test_the_rest_follows_the_mode_and_a_copy_has_its_own_weights():
    encoder = encoder_with_statistics("test_resnet", 32)
    encoder.freeze(2)
    twin = copy.deepcopy(encoder).eval()
    maps = torch.randn(4, 48, 4, 4)
    trained = encoder.train().encode_maps(maps).pooled
    evaluated = encoder.eval().encode_maps(maps).pooled
    assert not torch.allclose(trained, evaluated)
    with torch.no_grad():
        before = twin.encode_maps(maps).pooled
        for parameter in encoder.parameters():
            parameter.add_(0.1)
        torch.testing.assert_close(twin.encode_maps(maps).pooled, before, rtol=0, atol=0)
        assert not torch.allclose(encoder.encode_maps(maps).pooled, before)


def test_the_digest_is_of_the_frozen_values_alone():
    encoder = encoder_with_statistics("test_resnet", 32)
    encoder.freeze(2)
    before = digest_of(encoder.frozen_tensors())
    assert digest_of(encoder.to(memory_format=torch.channels_last).frozen_tensors()) == before
    with torch.no_grad():
        encoder.backbone.layer4[0].conv1.weight.add_(1)
        assert digest_of(encoder.frozen_tensors()) == before
        encoder.backbone.bn1.running_mean.add_(1e-6)
    assert digest_of(encoder.frozen_tensors()) != before


def test_a_number_out_of_range_says_how_many_there_are():
    with pytest.raises(InputError, match=r"between 0 and 7, .*'tf_efficientnet_lite0'.* got 8"):
        build_encoder("tf_efficientnet_lite0", image_size=64).freeze(8)


@pytest.mark.parametrize("name", ["small_convnet", "densenet121"])
def test_other_families_are_refused_by_name(name):
    with pytest.raises(InputError, match=rf"'{name}' cannot be split.*EfficientNet.*ResNet.*TResNet"):
        build_encoder(name).freeze(1)


def test_a_forward_that_does_more_than_its_stages_is_refused():
    encoder = build_encoder("test_resnet", image_size=32)
    plain = type(encoder.backbone)
    encoder.backbone.__class__ = type(
        "WithShortcut",
        (plain,),
        {"forward_features": lambda self, images: plain.forward_features(self, images) + images.mean()},
    )
    with pytest.raises(InputError, match=r"'test_resnet' cannot be split"):
        encoder.freeze(1)
