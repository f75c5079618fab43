from __future__ import annotations

import csv
import importlib.machinery
import os
import sys
import types
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image
from torch import nn

from kmcl.encoders import weights as weights_module
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.encoders.weights import PACKAGES, OfflineWeights, create_backbone, default_weights, load_weights
from kmcl.errors import InputError

timm = weights_module.timm  # imported there after the operators it needs are declared

PHOTOGRAPHS = Path(__file__).parents[2] / "../shared/data/coco18"
SMALL = "test_resnet"


@pytest.fixture(scope="module")
def pretrained() -> nn.Module:
    """Stands for a network trained elsewhere: it has a classifier and lived-in normalisation statistics."""
    torch.manual_seed(0)
    model: nn.Module = timm.create_model(SMALL, num_classes=7)
    for name, buffer in model.named_buffers():
        if name.endswith(("running_mean", "running_var")):
            buffer.uniform_(0.5, 1.5)
    return model


def save(state: dict[str, torch.Tensor], path: Path) -> str:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return str(path)


def assert_holds(encoder_state: dict[str, torch.Tensor], source: dict[str, torch.Tensor]) -> None:
    assert encoder_state.keys() == {name for name in source if not name.startswith("fc.")}
    for name, tensor in encoder_state.items():
        assert torch.equal(tensor, source[name]), name


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_file_with_classifier_fills_every_tensor(pretrained: nn.Module, tmp_path: Path, suffix: str) -> None:
    path = save(pretrained.state_dict(), tmp_path / f"weights{suffix}")
    encoder = build_encoder(SMALL, path, image_size=64)
    assert_holds(encoder.backbone.state_dict(), pretrained.state_dict())


@pytest.mark.parametrize("prefix", ["module.", "encoder.backbone.", "task.model.encoder.backbone."])
def test_encoder_is_found_inside_a_whole_models_checkpoint(
    pretrained: nn.Module, tmp_path: Path, prefix: str
) -> None:
    state = {prefix + name: tensor for name, tensor in pretrained.state_dict().items()}
    if prefix != "module.":
        state["head.logits.weight"] = torch.zeros(3, 4)
    path = tmp_path / "last.ckpt"
    torch.save({"state_dict": state, "epoch": 3}, path)
    encoder = build_encoder(SMALL, str(path), image_size=64)
    assert_holds(encoder.backbone.state_dict(), pretrained.state_dict())


def test_grey_encoder_sees_grey_images_as_the_colour_encoder_does(
    pretrained: nn.Module, tmp_path: Path
) -> None:
    path = save(pretrained.state_dict(), tmp_path / "weights.safetensors")
    grey_encoder = build_encoder(SMALL, path, in_channels=1, image_size=64).eval()
    colour_encoder = build_encoder(SMALL, path, image_size=64).eval()
    grey = torch.rand(2, 1, 64, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(
            grey_encoder(grey).pooled, colour_encoder(grey.expand(-1, 3, -1, -1)).pooled, rtol=1e-4, atol=1e-5
        )


def test_position_embeddings_are_resampled_to_another_image_size(tmp_path: Path) -> None:
    source = timm.create_model("test_vit", num_classes=7)
    with torch.no_grad():
        source.pos_embed.fill_(0.25)
    path = save(source.state_dict(), tmp_path / "vit.safetensors")
    encoder = build_encoder("test_vit", path, image_size=96)
    position_embeddings = encoder.backbone.pos_embed
    assert position_embeddings.shape == (1, 1 + 6 * 6, 64)
    torch.testing.assert_close(position_embeddings, torch.full_like(position_embeddings, 0.25))
    assert torch.equal(encoder.backbone.cls_token, source.cls_token)


def test_misfits_are_named(pretrained: nn.Module, tmp_path: Path) -> None:
    state = dict(pretrained.state_dict())
    shaped = save(state | {"bn1.weight": torch.ones(3)}, tmp_path / "shaped.pth")
    with pytest.raises(
        InputError, match=r"shaped\.pth .*'bn1\.weight' has shape \(3,\), the encoder needs \("
    ):
        build_encoder(SMALL, shaped)
    del state["bn1.weight"]
    state["decoder.weight"] = torch.ones(1)
    with pytest.raises(InputError, match=r"missing bn1\.weight; not part of the encoder decoder\.weight"):
        build_encoder(SMALL, save(state, tmp_path / "other.pth"))
    with pytest.raises(InputError, match=r"other\.pth does not fit encoder 'test_vit'.* and \d+ more"):
        build_encoder("test_vit", str(tmp_path / "other.pth"))


def test_statistics_counters_may_be_missing(pretrained: nn.Module, tmp_path: Path) -> None:
    state = {n: t for n, t in pretrained.state_dict().items() if not n.endswith("num_batches_tracked")}
    encoder = build_encoder(SMALL, save(state, tmp_path / "old.pth"), image_size=64)
    assert_holds({n: t for n, t in encoder.backbone.state_dict().items() if n in state}, state)


class RunsWhenUnpickled:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.path),)


def test_code_in_a_file_is_not_run(tmp_path: Path) -> None:
    torch.save({"state_dict": RunsWhenUnpickled(tmp_path / "harm")}, tmp_path / "harmful.pth")
    with pytest.raises(InputError, match=r"harmful\.pth .*could run code"):
        build_encoder(SMALL, str(tmp_path / "harmful.pth"))
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("file", ["notes.safetensors", "notes.pth", "list.pth", "empty.pth", "absent.pth"])
def test_what_is_no_weights_file_is_named(tmp_path: Path, file: str) -> None:
    (tmp_path / "notes.safetensors").write_text("Not weights, notes.")
    (tmp_path / "notes.pth").write_text("Not weights, notes.")
    torch.save([torch.ones(2)], tmp_path / "list.pth")
    torch.save({}, tmp_path / "empty.pth")
    with pytest.raises(InputError, match=file):
        build_encoder(SMALL, str(tmp_path / file))


def test_an_unreachable_hub_is_said_at_once_with_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")  # the discard port: refused
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(InputError, match=r"'resnet18'.*lite0-pypi.*--weights PATH"):
        build_encoder("resnet18", "timm")


def test_a_download_that_breaks_off_names_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str, **options: object) -> nn.Module:
        raise ConnectionResetError(f"reset while loading {name}, pretrained={options['pretrained']}")

    monkeypatch.setattr(weights_module, "hub_is_reachable", lambda: True)
    monkeypatch.setattr(timm, "create_model", broken)
    with pytest.raises(InputError, match="reset while loading resnet18, pretrained=True"):
        create_backbone("resnet18", "timm")


def test_an_encoder_that_timm_has_no_weights_for() -> None:
    with pytest.raises(InputError, match="no weights for encoder 'resnet50_mlp'"):
        build_encoder("resnet50_mlp", "timm")


@pytest.fixture
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OfflineWeights, "is_installed", property(lambda self: False))


@pytest.mark.parametrize("weights", PACKAGES)
def test_default_is_the_package_where_it_serves(monkeypatch: pytest.MonkeyPatch, weights: str) -> None:
    monkeypatch.setattr(OfflineWeights, "is_installed", property(lambda self: True))
    assert default_weights(PACKAGES[weights].encoder) == weights
    assert default_weights(f"{PACKAGES[weights].encoder}.in1k") == weights
    assert default_weights("resnet50") == "timm"


@pytest.mark.parametrize("weights", PACKAGES)
def test_without_the_package_timm_serves_and_asking_for_it_says_what_to_install(
    not_installed: None, weights: str
) -> None:
    package = PACKAGES[weights]
    assert default_weights(package.encoder) == "timm"
    wanted = rf"{weights} needs the package {package.package}: pip install 'kmcl\[offline-weights\]'"
    with torch.device("meta"), pytest.raises(InputError, match=wanted):
        build_encoder(package.encoder, weights)


@pytest.mark.parametrize("name", ["module:nets.Net", "small_convnet"])
def test_default_is_none_for_what_nobody_has_weights_for(name: str) -> None:
    assert default_weights(name) == "none"


@pytest.mark.parametrize("weights", PACKAGES)
def test_package_fits_its_own_encoder_only(weights: str) -> None:
    wanted = f"{weights} fits encoder '{PACKAGES[weights].encoder}' only, not 'test_resnet'"
    with pytest.raises(InputError, match=wanted):
        build_encoder(SMALL, weights)


def test_an_unknown_word_is_answered_with_the_choices() -> None:
    with pytest.raises(
        InputError,
        match=r"'none', 'timm', 'lite0-pypi', 'lite1-pypi', 'lite2-pypi' or the path .*'lite9-pypi'",
    ):
        build_encoder(SMALL, "lite9-pypi")


@pytest.mark.parametrize("weights", PACKAGES)
def test_package_fills_every_tensor(weights: str) -> None:
    package = PACKAGES[weights]
    module = pytest.importorskip(package.module, reason="the offline-weights extra")
    path = getattr(module, package.file_class).get_model_file_path()
    published = list(torch.load(path, weights_only=True).values())
    encoder = build_encoder(package.encoder, weights)
    loaded = encoder.backbone.state_dict()
    assert len(loaded) == len(published) - 2  # the classifier's weight and bias
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(loaded.values(), published, strict=False))
    sizes = {"lite0-pypi": 224, "lite1-pypi": 240, "lite2-pypi": 260}
    assert (encoder.mean, encoder.std, encoder.input_size) == ((0.5,) * 3, (0.5,) * 3, sizes[weights])


class StandIn:
    """Stands for a package's class: the file is one that the test wrote."""

    path: Path

    @classmethod
    def get_model_file_path(cls) -> str:
        return str(cls.path)


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> type[StandIn]:
    """A package of weights for the small network, which is registered under the name 'small-pypi'."""
    module = types.ModuleType("small_weights")
    module.__spec__ = importlib.machinery.ModuleSpec("small_weights", None)
    module.SmallFile = StandIn  # type: ignore[attr-defined]
    monkeypatch.setattr(StandIn, "path", tmp_path / "small.pth", raising=False)
    monkeypatch.setitem(sys.modules, "small_weights", module)
    monkeypatch.setitem(PACKAGES, "small-pypi", OfflineWeights(SMALL, "small-weights", "SmallFile"))
    return StandIn


def renamed(pretrained: nn.Module) -> dict[str, torch.Tensor]:
    """Its tensors in their order, under the names of somebody else."""
    state = pretrained.state_dict()
    return {f"layer{i}.{name.rpartition('.')[2]}": tensor for i, (name, tensor) in enumerate(state.items())}


def test_a_package_is_one_entry(pretrained: nn.Module, stand_in: type[StandIn]) -> None:
    torch.save(renamed(pretrained), stand_in.path)
    encoder = build_encoder(SMALL, "small-pypi", image_size=64)
    assert_holds(encoder.backbone.state_dict(), pretrained.state_dict())
    assert default_weights(SMALL) == "small-pypi"


def test_a_package_of_other_tensors_is_refused(pretrained: nn.Module, stand_in: type[StandIn]) -> None:
    state = renamed(pretrained)
    first = next(iter(state))
    torch.save(dict(list(state.items())[1:]), stand_in.path)
    with pytest.raises(InputError, match=rf"holds {len(state) - 1} tensors where {SMALL} has {len(state)}"):
        build_encoder(SMALL, "small-pypi")
    torch.save({name.replace("weight", "bias"): tensor for name, tensor in state.items()}, stand_in.path)
    with pytest.raises(InputError, match=rf"has 'layer0\.bias' where {SMALL} has 'conv1\.0\.weight'"):
        build_encoder(SMALL, "small-pypi")
    torch.save(state | {first: torch.ones(2, 3, 3, 3)}, stand_in.path)
    with pytest.raises(InputError, match=r"'conv1\.0\.weight' has shape \(2, 3, 3, 3\)"):
        build_encoder(SMALL, "small-pypi")


@pytest.mark.parametrize("weights", PACKAGES)
def test_package_recognises_photographs(weights: str) -> None:
    """The order of tensors is right only if the network still knows what it learnt: dogs are 151 to 268."""
    package = PACKAGES[weights]
    pytest.importorskip(package.module, reason="the offline-weights extra")
    if not PHOTOGRAPHS.is_dir():
        pytest.skip("needs the photographs of coco18 beside the checkout")
    model = timm.create_model(package.encoder).eval()
    load_weights(model, weights)
    with torch.no_grad():
        best = model(dogs(8)).argmax(dim=1)
    assert int(((best >= 151) & (best <= 268)).sum()) >= 5, best.tolist()


def dogs(number: int) -> torch.Tensor:
    """Photographs of nothing but dogs, pixels between -1 and 1."""
    with (PHOTOGRAPHS / "labels.csv").open(newline="") as file:
        rows = [
            row for row in csv.DictReader(file) if row["dog"] == "1" and list(row.values()).count("1") == 1
        ]
    images = []
    for row in rows[:number]:
        photograph = Image.open(PHOTOGRAPHS / row["image"]).convert("RGB")
        side = min(photograph.size)
        left, top = (photograph.width - side) // 2, (photograph.height - side) // 2
        square = photograph.crop((left, top, left + side, top + side)).resize(
            (224, 224), Image.Resampling.BICUBIC
        )
        images.append(torch.from_numpy(np.asarray(square) / np.float32(127.5) - 1).permute(2, 0, 1))
    return torch.stack(images)
