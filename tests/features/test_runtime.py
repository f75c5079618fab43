"""onnxruntime and torch compute the same features of frozen stages."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from full_disk import no_room
from kmcl.encoders import open_encoder
from kmcl.features import runtime as frozen_runtime
from kmcl.features.runtime import TOLERANCE, FrozenRuntimes
from kmcl.models.classifier import Classifier
from kmcl.runs import planning as planning_facts
from kmcl.storage.atomic import WriteError

pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def classifier(name: str = "test_resnet", size: int = 32, stages: int = 2) -> Classifier:
    torch.manual_seed(0)
    return Classifier(open_encoder(name, image_size=size, frozen_stages=stages), nn.Identity()).eval()


def images(count: int, size: int = 32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, 256, (count, 3, size, size), generator=generator).to(torch.uint8)


@pytest.mark.parametrize(("name", "stages"), [("test_resnet", 2), ("test_vit", 3), ("test_efficientnet", 4)])
def test_same_rows_as_torch_for_any_number_of_images(name: str, stages: int, tmp_path: Path):
    size = 160 if name == "test_vit" else 32
    model = classifier(name, size, stages)
    by_torch = FrozenRuntimes().open("torch", model, "cpu", tmp_path)
    by_onnx = FrozenRuntimes().open("onnxruntime", model, "cpu", tmp_path)
    assert type(by_onnx) is not type(by_torch)
    for count in (1, 16, 21):
        expected, found = by_torch(images(count, size)), by_onnx(images(count, size))
        assert found.shape == expected.shape
        assert found.dtype == torch.float32
        assert (found - expected).abs().max() <= TOLERANCE * expected.abs().max()


def test_stages_are_exported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model = classifier()
    first = FrozenRuntimes().open("onnxruntime", model, "cpu", tmp_path)(images(3))
    monkeypatch.setattr(frozen_runtime, "_export", pytest.fail)
    assert torch.equal(FrozenRuntimes().open("onnxruntime", model, "cpu", tmp_path)(images(3)), first)


def test_a_file_that_computes_something_else_is_not_used(tmp_path: Path):
    FrozenRuntimes().open("onnxruntime", classifier(), "cpu", tmp_path)
    (file,) = tmp_path.glob("*.onnx")
    model = classifier()
    other = classifier(stages=1)
    file.write_bytes(frozen_runtime._export(other))
    runtime = FrozenRuntimes().open("onnxruntime", model, "cpu", tmp_path)
    assert torch.equal(runtime(images(2)), FrozenRuntimes().open("torch", model, "cpu", tmp_path)(images(2)))


def test_no_room_for_the_exported_stages_is_not_hidden_by_torch(tmp_path: Path):
    """Where they do not fit, features do not either; and torch's would differ in the last digits."""
    reason = r"\.onnx: cannot be written: File too large \([\d,]+ bytes needed, "
    with pytest.raises(WriteError, match=reason), no_room():
        FrozenRuntimes().open("onnxruntime", classifier(), "cpu", tmp_path)
    assert not list(tmp_path.iterdir())
    FrozenRuntimes().open("onnxruntime", classifier(), "cpu", tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".onnx"]


def test_without_the_packages_torch_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(planning_facts, "RUNTIME_PACKAGES", ("no_such_package",))
    FrozenRuntimes().open("onnxruntime", classifier(), "cpu", tmp_path)(images(1))
    assert not list(tmp_path.glob("*.onnx"))
