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
from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier, load_model, save_model
from kmcl.options.methods import KmclOptions
from kmcl.serving.loading import load_in_torch

DESCRIPTION = ModelDescription(
    LabelRules(
        ("cat", "dog", "hat"),
        thresholds=(0.5, 0.6, 0.7),
        temperatures=(1.0, 1.5, 2.0),
        biases=(0.0, 0.1, 0.2),
        probability_intervals=((0.1,) * 8,) * 3,
        cooccurrence=(((1, 0.5), (2, 0.25)), (), ((0, 1),)),
    ),
    KmclOptions(kernel="isotropic"),
    "test_vit",
    32,
    mean=(0.1, 0.2, 0.3),
    std=(0.4, 0.5, 0.6),
)


NOTHING_FITTED = dict.fromkeys(
    ("thresholds", "temperatures", "biases", "probability_intervals", "cooccurrence")
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    save_model(tmp_path / "model", build_classifier(DESCRIPTION), DESCRIPTION)
    return tmp_path / "model"


def change_description(folder: Path, **changes: object) -> None:
    path = folder / "model.json"
    values = json.loads(path.read_text())
    rules = changes.pop("rules", {})
    values |= changes
    values["rules"] = values["rules"] | rules if isinstance(rules, dict) else rules
    path.write_text(json.dumps(values))


def test_a_sound_folder_is_read_with_its_normalisation(folder: Path):
    classifier, description = load_model(folder)
    assert description == DESCRIPTION
    images = torch.rand(1, 3, 32, 32)
    expected = (images - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)) / torch.tensor([0.4, 0.5, 0.6]).view(
        1, 3, 1, 1
    )
    torch.testing.assert_close(classifier.normalise(images), expected)


def test_a_given_encoder_gets_the_weights(folder: Path):
    own = build_classifier(DESCRIPTION).encoder
    predictor = kmcl.load(folder, encoder=own)
    assert predictor.classifier.encoder is own
    for name, tensor in load_model(folder)[0].encoder.state_dict().items():
        assert torch.equal(own.state_dict()[name], tensor), name


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
        (
            {"rules": {**NOTHING_FITTED, "labels": [str(k) for k in range(99_999)]}},
            r"tensor 'head\.kernel_mixture\.logits\.weight' has shape",
        ),
        ({"rules": {"thresholds": [0.5]}}, r"model\.json: does not describe a model: thresholds must be 3"),
        ({"rules": 3}, r"label rules must be an object; got 3"),
        ({"image_size": 10**9}, "image_size must be between 1 and 8192; got 1000000000"),
        ({"image_size": 8192}, r"has shape \(1, \d+, 64\); the model needs"),
        ({"image_size": "32"}, "image_size must be between 1 and 8192; got '32'"),
        ({"in_channels": 2}, "in_channels must be 1 or 3; got 2"),
        ({"std": [1, 1, -1]}, "std must be finite and above 0; got -1"),
        ({"mean": ["0", 0, 0]}, "mean must be finite; got '0'"),
        ({"mean": 3}, "does not describe a model"),
        ({"encoder": "vit_giant_patch14_224"}, r"model\.safetensors: tensor '.*' has shape"),
        ({"encoder": "test_vitt"}, "model.json: timm knows no encoder 'test_vitt'"),
        ({"encoder": ["test_vit"]}, "encoder must be a name"),
        ({"method": {"name": "none"}}, "model.json: .*method must be one of"),
        ({"method": {"name": "kmcl", "kernel": 3}}, r"model\.json: .*kernel"),
        ({"method": {"name": "asl", "kernel": "isotropic"}}, r"model\.json: .*kernel"),
        ({"method": []}, r"model\.json: .*method must be an object with its options; got \[\]"),
        ({"method": "kmcl"}, "method must be an object with its options; got 'kmcl'"),
        ({"frozen_stages": -1}, "frozen_stages must be 0 to 1000; got -1"),
        ({"posthoc": 3}, "does not describe a model"),
        ({"posthoc": [{"name": "kernel_vote"}]}, "does not describe a model"),
        ({"surprise": 1}, "does not describe a model"),
        ({"format": "other"}, "is not a model of the format kmcl-model-2"),
        (
            {"format": "kmcl-model-1"},
            r"model\.json: was written by a version of kmcl before 0\.1\.0; train it again with this one",
        ),
    ],
)
@pytest.mark.usefixtures("no_shape_checks")
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
    with pytest.raises(InputError, match=r"weights\.pth: pickled checkpoints are never loaded"):
        kmcl.load(tmp_path / "weights.pth")
    with pytest.raises(InputError, match=r"model\.json: is not a model folder"):
        kmcl.load(folder / "model.json")
    with pytest.raises(InputError, match=r"model\.onnx: is an exported model; this needs the run"):
        load_in_torch("model.onnx")
    with pytest.raises(InputError, match=r"model\.onnx: an exported model contains its encoder"):
        kmcl.load("model.onnx", encoder=torch.nn.Identity())
    with pytest.raises(InputError, match=r"here: there is no such folder"):
        kmcl.load("./here")
