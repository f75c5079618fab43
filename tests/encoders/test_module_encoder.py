"""A user's own module as an encoder, plug-ins, and the one door to all encoders."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from kmcl.encoders import ENCODERS, EncoderFeatures, ModuleEncoder, TimmEncoder, open_encoder
from kmcl.encoders.module_encoder import is_module_name, module_name, module_required
from kmcl.encoders.weights import default_weights
from kmcl.errors import InputError
from kmcl.methods import METHODS
from kmcl.models.classifier import Classifier
from kmcl.models.folding import fold_batch_norms
from small_options import small_options

HALF = {"mean": (0.5,) * 3, "std": (0.25,) * 3}


class Maps(nn.Module):
    def __init__(self, in_channels: int = 3) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(in_channels, 6, 3, stride=4)
        self.norm = nn.BatchNorm2d(6)

    def forward(self, images: Tensor) -> Tensor:
        return self.norm(self.convolution(images))


class Tokens(Maps):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).flatten(2).transpose(1, 2)


class Widened(Maps):
    """Pools by itself, to another width."""

    def forward(self, images: Tensor) -> EncoderFeatures:
        spatial = super().forward(images).flatten(2).transpose(1, 2)
        return EncoderFeatures(spatial.amax(dim=1).repeat(1, 2), spatial)


class Untraceable(Maps):
    """Looks at values, which a run on the meta device does not have."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images) * (1.0 if images.max().item() > 0 else 2.0)


class Pooled(Maps):
    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images).mean(dim=(2, 3))


PLUGIN = """
from torch import nn
from kmcl.encoders import EncoderFactory

class Maps(nn.Conv2d):
    def __init__(self, image_size, in_channels):
        super().__init__(in_channels, 6, 3, stride=4)

factory = EncoderFactory(Maps, image_size=40)
"""


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A package is installed whose entry point adds the encoder 'my_maps'."""
    (tmp_path / "plugin_of_maps.py").write_text(PLUGIN)
    metadata = tmp_path / "plugin_of_maps-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-of-maps\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[kmcl.encoders]\nmy_maps = plugin_of_maps:factory\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    vars(ENCODERS).pop("_installed", None)  # what it found before
    yield
    vars(ENCODERS).pop("_installed", None)
    ENCODERS._loaded.clear()


@pytest.mark.parametrize(("kind", "feature_dim"), [(Maps, 6), (Tokens, 6), (Widened, 12)])
def test_widths_are_found_and_features_are_the_modules(kind: type[Maps], feature_dim: int) -> None:
    module = kind()
    encoder = ModuleEncoder(module, 32, **HALF).eval()
    assert (encoder.feature_dim, encoder.spatial_dim) == (feature_dim, 6)
    assert (encoder.in_channels, encoder.input_size, encoder.num_frozen_stages) == (3, 32, 0)
    images = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        features = encoder(images)
        maps = Maps.forward(module, images)
    assert features.taps is None
    torch.testing.assert_close(features.spatial, maps.flatten(2).transpose(1, 2))
    pooled = maps.amax(dim=(2, 3)).repeat(1, 2) if kind is Widened else maps.mean(dim=(2, 3))
    torch.testing.assert_close(features.pooled, pooled)


def test_a_declared_width_serves_where_a_dry_run_cannot() -> None:
    with pytest.raises(InputError, match=r"Untraceable' cannot be run on 3 x 32 x 32 .*give feature_dim"):
        ModuleEncoder(Untraceable(), 32, **HALF)
    assert ModuleEncoder(Untraceable(), 32, **HALF, feature_dim=6).feature_dim == 6
    module = Untraceable()
    module.num_features = 6
    encoder = ModuleEncoder(module, 32, **HALF)
    assert encoder.spatial_dim == 6
    assert encoder(torch.rand(2, 3, 32, 32)).pooled.shape == (2, 6)


@pytest.mark.parametrize(
    ("module", "arguments", "message"),
    [
        (Maps(), {"feature_dim": 7}, "feature_dim of encoder '.*Maps' is 7, but its features have 6"),
        (Pooled(), {}, r"must give a feature map .*it gives a tensor of shape \(1, 6\)"),
        (Maps(), {"std": (0.5,)}, "mean and std must have a value per channel; got 3 and 1"),
        (Maps(), {"image_size": 0}, "image_size must be positive, got 0"),
        (Maps(), {"mean": (0.5,) * 2, "std": (0.5,) * 2}, "in_channels must be .* got 2"),
    ],
)
def test_unusable_modules_say_why(module: nn.Module, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ModuleEncoder(module, **({"image_size": 32} | HALF | arguments))


def test_the_name_is_the_import_path_and_loading_by_it_asks_for_the_module() -> None:
    name = ModuleEncoder(Maps(), 32, **HALF).name
    assert name == f"module:{Maps.__module__}.Maps" == module_name(Maps())
    assert is_module_name(name)
    assert not is_module_name("resnet18")
    wanted = f"the model's encoder is the user's own class {Maps.__module__}.Maps; pass it, as in kmcl.load("
    assert str(module_required(name)) == f"{wanted}path, encoder=Maps())"
    with pytest.raises(InputError, match=r"pass it, as in kmcl\.load\(path, encoder=Maps\(\)\)"):
        open_encoder(name)


def test_it_trains_and_its_state_fits_a_new_one() -> None:
    encoder = ModuleEncoder(Maps(), 32, **HALF)
    before = copy.deepcopy(encoder.state_dict())
    optimiser = torch.optim.SGD(encoder.parameters(), lr=1.0)
    features = encoder(torch.rand(4, 3, 32, 32))
    (features.pooled.square().sum() + features.spatial.abs().sum()).backward()
    optimiser.step()
    changed = {name for name, tensor in encoder.state_dict().items() if not torch.equal(tensor, before[name])}
    assert {"backbone.convolution.weight", "backbone.norm.bias", "backbone.norm.running_mean"} <= changed
    other = ModuleEncoder(Maps(), 32, **HALF)
    other.load_state_dict(encoder.state_dict())
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(other.eval()(images), encoder.eval()(images), rtol=0, atol=0)


@pytest.mark.parametrize("kind", [Maps, Tokens, Widened])
def test_it_can_be_exported(kind: type[Maps]) -> None:
    encoder = ModuleEncoder(kind(), 32, **HALF).eval()
    batch = torch.export.Dim("batch", min=1, max=16)
    exported = torch.export.export(encoder, (torch.rand(2, 3, 32, 32),), dynamic_shapes=({0: batch},))
    images = torch.rand(5, 3, 32, 32)
    torch.testing.assert_close(exported.module()(images), encoder(images))


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_it(method: str) -> None:
    encoder = ModuleEncoder(Maps(), 32, **HALF)
    options = small_options(method)
    classifier = Classifier(encoder, METHODS[method].build_head(encoder, 3, options)).eval()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        logits = classifier(images).logits
        assert logits.shape == (2, 3)
        folded = fold_batch_norms(classifier)
        assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.encoder.modules())
        torch.testing.assert_close(folded(images).logits, logits, rtol=1e-4, atol=1e-4)


def test_the_door_opens_timm_modules_and_plugins(plugins: None) -> None:
    timm_encoder = open_encoder("test_resnet", image_size=32, frozen_stages=1, taps=True)
    assert isinstance(timm_encoder, TimmEncoder)
    assert (timm_encoder.num_frozen_stages, timm_encoder.has_taps) == (1, True)
    assert open_encoder(timm_encoder, frozen_stages=1) is timm_encoder

    module = Maps()
    own = open_encoder(module, image_size=32)
    assert own.backbone is module
    assert own.mean == (0.485, 0.456, 0.406)
    module.input_size, module.mean, module.std = 24, [0.1, 0.2, 0.3], (1.0, 1.0, 1.0)
    own = open_encoder(module)
    assert (own.input_size, own.mean, own.std) == (24, (0.1, 0.2, 0.3), (1.0, 1.0, 1.0))

    plugin = open_encoder("my_maps", in_channels=1)
    assert (plugin.name, plugin.input_size, plugin.in_channels) == ("my_maps", 40, 1)
    assert plugin.mean == pytest.approx((0.449,))
    assert open_encoder("my_maps", image_size=20)(torch.rand(1, 3, 20, 20)).pooled.shape == (1, 6)
    assert default_weights("my_maps") == "none"


def test_a_file_fills_a_plugin(plugins: None, tmp_path: Path) -> None:
    source = nn.Conv2d(3, 6, 3)
    torch.save(source.state_dict(), tmp_path / "maps.pth")
    encoder = open_encoder("my_maps", str(tmp_path / "maps.pth"))
    assert torch.equal(encoder.backbone.weight, source.weight)
    with pytest.raises(InputError, match=r"maps\.pth does not fit encoder 'Conv2d'"):
        open_encoder(nn.Conv2d(3, 2, 1), str(tmp_path / "maps.pth"), image_size=8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"encoder": "my_map"}, r"no encoder 'my_map'\. Did you mean my_maps"),
        ({"encoder": "my_maps", "frozen_stages": 2}, "'my_maps' has no stages to freeze; frozen_stages must"),
        ({"encoder": "my_maps", "weights": "timm"}, "timm has no weights for encoder 'my_maps'"),
        ({"encoder": "my_maps", "weights": "lite1-pypi"}, "lite1-pypi fits encoder 'tf_.*' only, not 'Maps'"),
        ({"encoder": Maps()}, "image_size must be given: Maps has no attribute input_size"),
        ({"encoder": ModuleEncoder(Maps(), 32, **HALF), "frozen_stages": 1}, "built with 0 frozen stages"),
        ({"encoder": "my_maps", "in_channels": 4}, "in_channels must be .* got 4"),
    ],
)
def test_what_cannot_be_opened_says_why(plugins: None, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_encoder(**arguments)  # type: ignore[arg-type]
