"""A cut encoder: its two parts are the whole one, what is frozen stays, taps at construction, refusals."""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from kmcl.encoders import EncoderFeatures, TimmEncoder
from kmcl.encoders.stages import EncoderCut, digest_of, find_stages
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.errors import InputError

CUTS = [
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


def encoder_with_statistics(
    name: str, image_size: int, frozen_stages: int = 0, *, taps: bool = False
) -> TimmEncoder:
    """Untrained, but with norms whose running statistics differ from those of a batch."""
    torch.manual_seed(0)
    encoder = build_encoder(name, image_size=image_size, frozen_stages=frozen_stages, taps=taps)
    torch.manual_seed(1)
    for part in encoder.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.running_mean.normal_(0, 0.3)
            part.running_var.uniform_(0.5, 2)
    return encoder


def tapped_resnet() -> TimmEncoder:
    return encoder_with_statistics("test_resnet", 32, 2, taps=True)


@pytest.mark.parametrize(("name", "image_size", "num_stages", "shape"), CUTS)
def test_frozen_stages_then_the_rest_are_the_whole(name, image_size, num_stages, shape):
    # Rows are channels last; sums in another order would differ by rounding.
    uncut, cut, tapped = (
        encoder_with_statistics(name, image_size, frozen_stages, taps=taps)
        .eval()
        .to(memory_format=torch.channels_last)
        for frozen_stages, taps in ((0, False), (num_stages, False), (num_stages, True))
    )
    assert list(tapped.state_dict()) == list(uncut.state_dict())
    images = torch.randn(3, 3, image_size, image_size).to(memory_format=torch.channels_last)
    with torch.no_grad():
        whole, again, with_taps = uncut(images), cut(images), tapped(images)
        split = cut.encode_rows(cut.frozen_rows(images))
    assert whole.taps is None
    assert again.taps is None
    assert split.taps.maps.shape[1:] == shape
    torch.testing.assert_close(split.taps, with_taps.taps, rtol=0, atol=0)
    for part in ("pooled", "spatial"):
        expected = getattr(whole, part)
        assert expected.abs().max() > 1e-3
        torch.testing.assert_close(getattr(split, part), expected, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(getattr(with_taps, part), expected, rtol=0, atol=0)
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
    encoder = encoder_with_statistics(name, image_size, num_stages, taps=True).eval()
    maps: list[Tensor] = []
    stages = find_stages(encoder.backbone, name).stages[max(0, num_stages - 3) : num_stages]
    for stage in stages:
        encoder.backbone.get_submodule(stage).register_forward_hook(
            lambda module, inputs, output: maps.append(output)
        )
    images = torch.randn(2, 3, image_size, image_size)
    with torch.no_grad():
        statistics = encoder(images).taps.statistics
    assert [part.shape[1] // 2 for part in statistics] == channels
    assert encoder.statistic_widths == tuple(2 * width for width in channels)
    for part, of_stage in zip(statistics, maps, strict=True):
        positions = of_stage.flatten(2) if of_stage.ndim == 4 else of_stage.transpose(1, 2)
        deviations, means = torch.std_mean(positions.double(), dim=2, correction=0)
        torch.testing.assert_close(part.double(), torch.cat([means, deviations], dim=1), rtol=1e-4, atol=1e-5)


def test_an_encoder_with_taps_shares_its_backbone_with_the_one_it_is_of():
    encoder = encoder_with_statistics("test_resnet", 32, 2).eval()
    tapped = encoder.with_taps()
    images = torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        assert encoder(images).taps is None
        before = tapped(images)
        assert len(before.taps.statistics) == 2
        encoder.backbone.layer4[0].bn2.bias.add_(1)
        torch.testing.assert_close(tapped(images).pooled, encoder(images).pooled, rtol=0, atol=0)
        assert not torch.allclose(tapped(images).pooled, before.pooled)


def test_what_needs_frozen_stages_says_so_where_there_are_none():
    encoder = build_encoder("test_resnet", image_size=32)
    assert encoder.num_frozen_stages == 0
    assert encoder.frozen_tensors() == {}
    asked = [
        encoder.rest,
        encoder.with_taps,
        lambda: encoder.statistic_widths,
        lambda: encoder.frozen_rows(torch.rand(1, 3, 32, 32)),
        lambda: encoder.encode_rows(torch.rand(1, 32)),
    ]
    for ask in asked:
        with pytest.raises(InputError, match=r"'test_resnet' has no frozen stages; frozen_stages must be"):
            ask()


@pytest.mark.parametrize(("name", "image_size", "num_stages"), [row[:3] for row in CUTS if "test_" in row[0]])
@pytest.mark.parametrize("taps", [False, True])
def test_training_leaves_frozen_stages_as_they_are_and_changes_the_rest(name, image_size, num_stages, taps):
    encoder = encoder_with_statistics(name, image_size, num_stages, taps=taps)
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
    encoder = tapped_resnet()
    twin = copy.deepcopy(encoder).eval()
    images = torch.randn(4, 3, 32, 32)
    trained = encoder.train()(images).pooled
    evaluated = encoder.eval()(images).pooled
    assert not torch.allclose(trained, evaluated)
    with torch.no_grad():
        rows = encoder.frozen_rows(images)
        before, from_images = twin.encode_rows(rows).pooled, twin(images).pooled
        for parameter in encoder.parameters():
            parameter.add_(0.1)
        torch.testing.assert_close(twin.encode_rows(rows).pooled, before, rtol=0, atol=0)
        torch.testing.assert_close(twin(images).pooled, from_images, rtol=0, atol=0)
        assert not torch.allclose(encoder.encode_rows(rows).pooled, before)


def test_threads_do_not_get_each_others_taps():
    encoder = tapped_resnet().eval()
    batches = [torch.randn(2, 3, 32, 32) for _ in range(24)]

    @torch.no_grad()
    def encode(images: Tensor) -> EncoderFeatures:
        return encoder(images)

    expected = [encode(images) for images in batches]
    with ThreadPoolExecutor(4) as threads:
        for found, alone in zip(threads.map(encode, batches), expected, strict=True):
            torch.testing.assert_close(found, alone, rtol=0, atol=0)


class Holder(torch.nn.Module):
    """Holds an encoder as a classifier does."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, images: Tensor) -> EncoderFeatures:
        return self.encoder(images)


@pytest.mark.parametrize("holder", [torch.nn.Sequential, Holder])
@pytest.mark.parametrize("name", ["test_resnet", "test_vit", "test_efficientnet", "test_convnext"])
def test_an_encoder_with_taps_can_be_exported(name, holder):
    model = holder(encoder_with_statistics(name, 64, 2, taps=True)).eval()
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(model, (torch.rand(2, 3, 64, 64),), dynamic_shapes=({0: batch},))
    images = torch.rand(3, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(exported.module()(images), model(images))


def test_an_encoder_with_taps_can_be_compiled(no_shape_checks):
    encoder = tapped_resnet().eval()
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        expected = encoder(images)
        encoder.compile(backend="eager")
        for _ in range(3):
            torch.testing.assert_close(encoder(images), expected)
        encoder.backbone.layer4[0].bn2.bias.add_(1)
        assert not torch.allclose(encoder(images).pooled, expected.pooled)


def test_the_digest_is_of_the_frozen_values_alone():
    encoder = encoder_with_statistics("test_resnet", 32, 2)
    before = digest_of(encoder.frozen_tensors())
    assert digest_of(encoder.to(memory_format=torch.channels_last).frozen_tensors()) == before
    with torch.no_grad():
        encoder.backbone.layer4[0].conv1.weight.add_(1)
        assert digest_of(encoder.frozen_tensors()) == before
        encoder.backbone.bn1.running_mean.add_(1e-6)
    assert digest_of(encoder.frozen_tensors()) != before


def test_a_cut_encoder_is_built_without_values_too():
    with torch.device("meta"):
        encoder = build_encoder("test_resnet", image_size=32, frozen_stages=2, taps=True)
    assert encoder.statistic_widths == (64, 96)
    assert not encoder.backbone.layer1[0].conv1.weight.requires_grad


def test_a_number_out_of_range_says_how_many_there_are():
    with pytest.raises(InputError, match=r"between 0 and 7, .*'tf_efficientnet_lite0'.* got 8"):
        build_encoder("tf_efficientnet_lite0", image_size=64, frozen_stages=8)


@pytest.mark.parametrize("name", ["small_convnet", "densenet121"])
def test_other_families_are_refused_by_name(name):
    with pytest.raises(InputError, match=rf"'{name}' cannot be split.*EfficientNet.*ResNet.*TResNet"):
        build_encoder(name, frozen_stages=1)


def test_a_forward_that_does_more_than_its_stages_is_refused():
    backbone = build_encoder("test_resnet", image_size=32).backbone
    assert EncoderCut(backbone, "test_resnet", 1, 3, 32).num_stages == 1
    plain = type(backbone)
    backbone.__class__ = type(
        "WithShortcut",
        (plain,),
        {"forward_features": lambda self, images: plain.forward_features(self, images) + images.mean()},
    )
    with pytest.raises(InputError, match=r"'test_resnet' cannot be split"):
        EncoderCut(backbone, "test_resnet", 1, 3, 32)
