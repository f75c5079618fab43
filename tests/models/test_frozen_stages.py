"""Frozen stages: the split encoder is the whole one, what is frozen stays, others are refused."""

from __future__ import annotations

import copy

import pytest
import torch

from kmcl.errors import InputError
from kmcl.models.encoder import Encoder, build_encoder
from kmcl.models.frozen_stages import digest_of, find_stages

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
    # Rows are channels last; sums in another order would differ by rounding.
    encoder = encoder_with_statistics(name, image_size).eval().to(memory_format=torch.channels_last)
    images = torch.randn(3, 3, image_size, image_size).to(memory_format=torch.channels_last)
    with torch.no_grad():
        whole = encoder(images)
        encoder.freeze(num_stages)
        split = encoder.encode_rows(encoder.frozen_rows(images))
        again = encoder(images)
        encoder.hand_on(num_stages)
        handed_on = encoder(images)
    assert whole.first is None
    assert again.first is None
    assert split.first.maps.shape[1:] == shape
    torch.testing.assert_close(split.first, handed_on.first, rtol=0, atol=0)
    for part in ("pooled", "spatial"):
        expected = getattr(whole, part)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(getattr(split, part), expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(getattr(handed_on, part), expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(getattr(again, part), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    ("name", "image_size", "num_stages", "channels"),
    [
        ("tf_efficientnet_lite0", 64, 6, [80, 112, 192]),
        ("resnet18", 64, 2, [64, 128]),
        ("test_vit", 160, 4, [64] * 3),
    ],
)
def test_statistics_are_of_the_last_three_stages(name, image_size, num_stages, channels):
    encoder = encoder_with_statistics(name, image_size).eval()
    seen = []
    stages = find_stages(encoder.backbone, name).stages[max(0, num_stages - 3) : num_stages]
    for stage in stages:
        encoder.backbone.get_submodule(stage).register_forward_hook(
            lambda module, inputs, output: seen.append(output)
        )
    images = torch.randn(2, 3, image_size, image_size)
    with torch.no_grad():
        encoder(images)
        maps = list(seen)
        encoder.hand_on(num_stages)
        statistics = encoder(images).first.statistics
    assert [part.shape[1] // 2 for part in statistics] == channels
    for part, of_stage in zip(statistics, maps, strict=True):
        positions = of_stage.flatten(2) if of_stage.ndim == 4 else of_stage.transpose(1, 2)
        deviations, means = torch.std_mean(positions.double(), dim=2, correction=0)
        torch.testing.assert_close(part.double(), torch.cat([means, deviations], dim=1), rtol=1e-4, atol=1e-5)


def test_first_stages_are_chosen_once_and_asked_for_after_that():
    with pytest.raises(InputError, match="at least one first stage to hand on; got 0"):
        build_encoder("test_resnet", image_size=32).hand_on(0)
    encoder = build_encoder("test_resnet", image_size=32)
    encoder.hand_on(2)
    encoder.hand_on(2)
    assert len(encoder.eval()(torch.rand(1, 3, 32, 32)).first.statistics) == 2
    with pytest.raises(ValueError, match="2 stages are handed on already; got 3"):
        encoder.hand_on(3)
    with pytest.raises(ValueError, match="neither freeze nor hand_on"):
        build_encoder("test_resnet", image_size=32).rest()


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
    rows = encoder.frozen_rows(torch.randn(4, 3, 32, 32)).detach()
    trained = encoder.train().encode_rows(rows).pooled
    evaluated = encoder.eval().encode_rows(rows).pooled
    assert not torch.allclose(trained, evaluated)
    with torch.no_grad():
        before = twin.encode_rows(rows).pooled
        for parameter in encoder.parameters():
            parameter.add_(0.1)
        torch.testing.assert_close(twin.encode_rows(rows).pooled, before, rtol=0, atol=0)
        assert not torch.allclose(encoder.encode_rows(rows).pooled, before)


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
