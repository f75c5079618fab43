from __future__ import annotations

import pytest
import torch

from kmcl.encoders import Encoder, EncoderFeatures, TimmEncoder, dry_run
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.errors import InputError


def images_for(encoder: Encoder, batch_size: int = 2) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    size = encoder.input_size
    return torch.randn(batch_size, encoder.in_channels, size, size, generator=generator)


@pytest.mark.parametrize(
    ("name", "image_size", "feature_dim", "spatial_dim", "num_positions"),
    [
        ("tresnet_m", 224, 2048, 2048, 7 * 7),
        ("tresnet_v2_l", 448, 2048, 2048, 14 * 14),
        ("resnet50", 224, 2048, 2048, 7 * 7),
        ("vit_small_patch16_dinov3", 224, 384, 384, 14 * 14),  # one class and four register tokens
        ("tf_efficientnet_lite0", 96, 1280, 1280, 3 * 3),
        ("swin_tiny_patch4_window7_224", 224, 768, 768, 7 * 7),  # channels last
        ("convnext_tiny", 224, 768, 768, 7 * 7),
        ("mobilenetv3_small_100", 224, 1024, 576, 7 * 7),  # widened after pooling
        ("cait_xxs24_224", 224, 192, 192, 14 * 14),  # a class token it does not declare
    ],
)
def test_widths_and_positions_of_known_encoders(
    name: str, image_size: int, feature_dim: int, spatial_dim: int, num_positions: int
) -> None:
    with torch.device("meta"):
        encoder = build_encoder(name, image_size=image_size)
    features = dry_run(encoder, 3, image_size)
    assert (encoder.feature_dim, encoder.spatial_dim) == (feature_dim, spatial_dim)
    assert features.pooled.shape == (1, feature_dim)
    assert features.spatial.shape == (1, num_positions, spatial_dim)


@pytest.mark.parametrize("name", ["test_resnet", "swin_tiny_patch4_window7_224"])
def test_pooled_is_the_mean_over_positions_where_the_encoder_averages(name: str) -> None:
    encoder = build_encoder(name, image_size=64).eval()
    with torch.no_grad():
        features = encoder(images_for(encoder))
    torch.testing.assert_close(features.pooled, features.spatial.mean(dim=1))


def test_positions_run_row_by_row_and_are_views_of_the_map() -> None:
    encoder = build_encoder("test_resnet", image_size=96).eval()
    images = images_for(encoder)
    with torch.no_grad():
        maps = encoder.backbone.forward_features(images)
        spatial = encoder(images).spatial
    width = maps.shape[3]
    assert maps.shape[2] == width > 1
    for row in range(width):
        for column in range(width):
            torch.testing.assert_close(spatial[:, row * width + column], maps[:, :, row, column])
    assert spatial._base is not None


def test_class_token_is_pooled_and_not_among_the_patches() -> None:
    encoder = build_encoder("test_vit").eval()
    images = images_for(encoder)
    with torch.no_grad():
        tokens = encoder.backbone.forward_features(images)
        features = encoder(images)
    torch.testing.assert_close(features.spatial, tokens[:, 1:])
    torch.testing.assert_close(features.pooled, encoder.backbone(images))


def test_input_description_comes_from_timm() -> None:
    with torch.device("meta"):
        dino = build_encoder("vit_small_patch16_dinov3")
        tresnet = build_encoder("tresnet_m", in_channels=1, image_size=112)
        grey = build_encoder("resnet50", in_channels=1)
    assert (dino.name, dino.input_size) == ("vit_small_patch16_dinov3", 256)
    assert (dino.mean, dino.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert (tresnet.input_size, tresnet.mean, tresnet.std) == (112, (0.0,), (1.0,))
    assert grey.mean == pytest.approx((0.449,))
    assert grey.std == pytest.approx((0.226,))


def test_building_leaves_no_trace_of_the_dry_run() -> None:
    encoder = build_encoder("test_resnet", image_size=64)
    assert encoder.training
    assert {tensor.device.type for tensor in encoder.state_dict().values()} == {"cpu"}
    running_means = [v for k, v in encoder.state_dict().items() if k.endswith("running_mean")]
    assert running_means
    assert all(not mean.any() for mean in running_means)


def test_encoders_that_are_built_alike_are_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []

    def counted(module: torch.nn.Module, in_channels: int, image_size: int) -> object:
        runs.append((in_channels, image_size))
        return dry_run(module, in_channels, image_size)

    for module in ("timm_encoder", "stages"):
        monkeypatch.setattr(f"kmcl.encoders.{module}.dry_run", counted)
    monkeypatch.setattr("kmcl.encoders.interface._MEASURED", {})
    first, again = (build_encoder("test_resnet", image_size=48, frozen_stages=2) for _ in range(2))
    assert runs == [(3, 48)] * 2  # the whole and its first stages
    assert (again.feature_dim, again.row_width) == (first.feature_dim, first.row_width)
    deeper = build_encoder("test_resnet", image_size=48, frozen_stages=3)
    assert deeper.row_width != first.row_width
    larger = build_encoder("test_resnet", in_channels=1, image_size=64, frozen_stages=2)
    assert larger.row_width > first.row_width
    assert runs[2:] == [(3, 48), (1, 64), (1, 64)]


def test_a_backbone_with_other_settings_is_measured_anew() -> None:
    """Of the same name, class and weights: a pooling of stride 1 changes what comes after it."""
    backbone = build_encoder("resnet18", image_size=64).backbone
    before = TimmEncoder(backbone, "resnet18", 3, 64, frozen_stages=2).row_width
    backbone.maxpool.stride = 1
    assert TimmEncoder(backbone, "resnet18", 3, 64, frozen_stages=2).row_width > 3 * before


@pytest.mark.parametrize("name", ["test_resnet", "test_vit"])
def test_forward_can_be_exported(name: str) -> None:
    encoder = build_encoder(name, image_size=64).eval()
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(encoder, (images_for(encoder, 2),), dynamic_shapes=({0: batch},))
    images = images_for(encoder, 3)
    with torch.no_grad():
        ours, theirs = encoder(images), exported.module()(images)
    assert isinstance(theirs, EncoderFeatures)
    torch.testing.assert_close(theirs.pooled, ours.pooled)
    torch.testing.assert_close(theirs.spatial, ours.spatial)


def test_gradient_reaches_the_first_convolution_through_either_output() -> None:
    encoder = build_encoder("test_resnet", image_size=64)
    for output in ("pooled", "spatial"):
        encoder.zero_grad()
        getattr(encoder(images_for(encoder)), output).square().mean().backward()
        gradient = next(encoder.parameters()).grad
        assert gradient is not None
        assert gradient.abs().sum() > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "tresnet_v2l"}, r"'tresnet_v2l'\. Did you mean tresnet_v2_l"),
        ({"name": "resnet50.a1_in1m"}, r"Did you mean resnet50\.a1_in1k"),
        ({"name": "xyzzy"}, r"timm\.list_models"),
        ({"name": "test_resnet", "in_channels": 2}, "in_channels must be .* got 2"),
        ({"name": "test_resnet", "image_size": 0}, "image_size must be positive, got 0"),
        ({"name": "efficientformer_l1", "image_size": 192}, "'efficientformer_l1' .*192"),
        ({"name": "swinv2_tiny_window8_256", "image_size": 192}, "256 px, cannot be built for 192"),
        ({"name": "crossvit_tiny_240"}, "no single feature map"),
        ({"name": "test_resnet", "taps": True}, "taps need frozen_stages of at least 1; got 0"),
    ],
)
def test_unusable_requests_say_why(arguments: dict[str, object], message: str) -> None:
    with torch.device("meta"), pytest.raises(InputError, match=message):
        build_encoder(**arguments)  # type: ignore[arg-type]
