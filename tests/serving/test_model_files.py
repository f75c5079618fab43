"""Model folders from anybody: whatever is wrong with one is said, and nothing is run or allocated for it."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

import kmcl
from kmcl.errors import InputError
from kmcl.methods.model_folder import ModelDescription, build_classifier, load_model, save_model

DESCRIPTION = ModelDescription(
    ("cat", "dog", "hat"),
    "kmcl",
    "test_vit",
    32,
    thresholds=(0.5, 0.6, 0.7),
    temperatures=(1.0, 1.5, 2.0),
    biases=(0.0, 0.1, 0.2),
    mean=(0.1, 0.2, 0.3),
    std=(0.4, 0.5, 0.6),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_model(tmp_path / "model", build_classifier(DESCRIPTION), DESCRIPTION)
    return tmp_path / "model"


def change_description(folder: Path, **changes: object) -> None:
    path = folder / "model.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_a_sound_folder_is_read_with_its_normalisation(folder: Path):
    classifier, description = load_model(folder)
    assert description == DESCRIPTION
    images = torch.rand(1, 3, 32, 32)
    expected = (images - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)) / torch.tensor([0.4, 0.5, 0.6]).view(
        1, 3, 1, 1
    )
    torch.testing.assert_close(classifier.normalise(images), expected)


def test_saving_a_predictor_spells_out_its_preprocessing(folder: Path, tmp_path: Path):
    change_description(folder, mean=None, std=None)
    predictor = kmcl.load(folder)
    predictor.save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved" / "model.json").read_text())
    assert saved["mean"] == list(predictor.classifier.encoder.mean)
    assert saved["image_size"] == 32
    image = np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)
    for again in (kmcl.load(tmp_path / "saved"), kmcl.Predictor.from_pretrained(tmp_path / "saved")):
        assert again.predict(image) == predictor.predict(image)
    assert {file.name for file in (tmp_path / "saved").iterdir()} == {
        "model.json",
        "model.safetensors",
        "README.md",
        "config.json",
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": []}, "labels must be 1 to"),
        ({"labels": ["a", "a", "b"]}, "labels must be different names"),
        ({"labels": ["a", "b", 3]}, "labels must be different names; got 3"),
        (
            {
                "labels": [str(k) for k in range(99_999)],
                "thresholds": None,
                "temperatures": None,
                "biases": None,
            },
            r"tensor 'head\.kernel_mixture\.logits\.weight' has shape",
        ),
        ({"image_size": 10**9}, "image_size must be between 1 and 8192; got 1000000000"),
        ({"image_size": 8192}, r"has shape \(1, \d+, 64\); the model needs"),
        ({"image_size": "32"}, "image_size must be between 1 and 8192; got '32'"),
        ({"in_channels": 2}, "in_channels must be 1 or 3; got 2"),
        ({"thresholds": [0.5]}, "thresholds must be 3 numbers; got 1"),
        ({"thresholds": [0.5, float("nan"), 0.5]}, "thresholds must be finite; got nan"),
        ({"temperatures": [1, 0, 1]}, "temperatures must be finite and above 0; got 0"),
        ({"std": [1, 1, -1]}, "std must be finite and above 0; got -1"),
        ({"mean": ["0", 0, 0]}, "mean must be finite; got '0'"),
        ({"bands": [[1] * 8] * 2}, "bands must be one row for each of 3 labels; got 2"),
        ({"bands": [[1] * 7] * 3}, "bands must be 8 numbers for each label; got 7"),
        ({"bands": [[1] * 7 + [0]] * 3}, "bands must end with a deviation above 0; got 0"),
        ({"bands": [["1"] * 8] * 3}, "bands must be finite numbers; got '1'"),
        ({"bands": 3}, "does not describe a model"),
        ({"companions": [[[3, 0.5]], [], []]}, r"an index of a label and a share; got \(3, 0.5\)"),
        ({"companions": [[[1, 1.5]], [], []]}, "between 0 and 1; got 1.5"),
        ({"companions": [[1], [], []]}, "does not describe a model"),
        ({"encoder": "vit_giant_patch14_224"}, r"model\.safetensors: tensor '.*' has shape"),
        ({"encoder": "test_vitt"}, "model.json: timm knows no encoder 'test_vitt'"),
        ({"encoder": ["test_vit"]}, "encoder must be a name"),
        ({"method": "none"}, "model.json: method must be one of"),
        ({"options": {"kernel": 3, "objective": {}}}, r"model\.json: "),
        ({"options": []}, "does not describe a model"),
        ({"surprise": 1}, "does not describe a model"),
        ({"format": "other"}, "is not a model of the format"),
    ],
)
def test_impossible_descriptions_are_refused(folder: Path, changes, message):
    change_description(folder, **changes)
    with pytest.raises(InputError, match=message):
        load_model(folder)


def test_a_description_that_is_no_json_is_refused(folder: Path):
    for text in ("", "[", "[" * 100_000, "{}", '"text"', "\x00"):
        (folder / "model.json").write_text(text)
        with pytest.raises(InputError, match=r"model\.json: "):
            load_model(folder)
    (folder / "model.json").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"model\.json: cannot be read"):
        load_model(folder)


def header(entries: dict[str, object]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        struct.pack("<Q", 2**62),
        header({"a": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}),
        header({"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]}}) + b"\0" * 4,
        header({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "b": {}}) + b"\0" * 4,
        b"\x80\x04" + b"cos\nsystem\n" * 3,
    ],
)
def test_weights_that_declare_more_than_they_hold_are_refused(folder: Path, content: bytes):
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors: is no file of weights"):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.double(), r"is torch\.float64; the model needs torch\.float32"),
        (lambda t: t.int(), r"is torch\.int32; the model needs torch\.float32"),
        (lambda t: t * torch.inf, "holds values that are not finite"),
        (lambda t: t[1:], r"has shape \(2,\); the model needs \(3,\)"),
    ],
)
def test_swapped_tensors_are_refused(folder: Path, change, message):
    weights = load_file(folder / "model.safetensors")
    weights["head.kernel_mixture.means.bias"] = change(weights["head.kernel_mixture.means.bias"] + 1)
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(InputError, match=rf"tensor 'head\.kernel_mixture\.means\.bias' {message}"):
        load_model(folder)


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(position=st.floats(0, 1), replacement=st.binary(min_size=1, max_size=40), part=st.sampled_from([0, 1]))
def test_random_damage_is_refused_or_harmless(folder: Path, position: float, replacement: bytes, part: int):
    """In the description, or in the first kilobytes of the weights, where their shapes are declared."""
    path = folder / ("model.json", "model.safetensors")[part]
    whole = path.read_bytes()
    start = int(position * min(len(whole), 4000))
    path.write_bytes(whole[:start] + replacement + whole[start + len(replacement) :])
    try:
        classifier, description = load_model(folder)
    except InputError as error:
        assert "model" in str(error)  # noqa: PT017
    else:
        assert torch.isfinite(classifier(torch.zeros(1, 3, 32, 32)).logits).all()
        assert len(description.labels) == 3
    finally:
        path.write_bytes(whole)


def test_what_is_no_model_is_said(folder: Path, tmp_path: Path):
    with pytest.raises(InputError, match=r"weights\.pth: a pickled checkpoint is never loaded"):
        kmcl.load(tmp_path / "weights.pth")
    with pytest.raises(InputError, match=r"model\.json: is no folder with a model"):
        kmcl.load(folder / "model.json")
    with pytest.raises(InputError, match=r"model\.onnx: is an exported model; .*open_predictor"):
        kmcl.load("model.onnx")
    with pytest.raises(InputError, match=r"here: there is no such folder"):
        kmcl.load("./here")
