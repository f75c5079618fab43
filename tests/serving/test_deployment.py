"""Entries of a Triton model repository and services of BentoML, from an exported file."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from brightness_onnx import SIDE, brightness_model
from kmcl.errors import InputError
from kmcl.serving.deployment import triton_config, write_bentoml_service, write_triton_entry
from kmcl.serving.onnx_predictor import OnnxPredictor

pytest.importorskip("onnx", reason="the extra export is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")

LABELS = ("bright", 'a "quoted" \\ label', "Läuse\nand more")


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(brightness_model(LABELS, unfamiliarity=True, summary=True))
    return path


def test_the_entry_of_a_repository_is_a_new_version_each_time(exported: Path, tmp_path: Path):
    folder = tmp_path / "repository" / "bright"
    assert write_triton_entry(exported, folder) == folder / "1"
    assert write_triton_entry(exported, folder) == folder / "2"
    assert (folder / "2" / "model.onnx").read_bytes() == exported.read_bytes()
    assert (folder / "labels.txt").read_text().splitlines() == [*LABELS[:2], "Läuse and more"]
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2", "config.pbtxt", "labels.txt"]


def test_triton_reads_the_configuration(exported: Path, tmp_path: Path):
    messages = pytest.importorskip(
        "tritonclient.grpc.model_config_pb2", reason="Triton's messages are in the package tritonclient[grpc]"
    )
    from google.protobuf import text_format

    write_triton_entry(exported, tmp_path / "bright")
    config = text_format.Parse((tmp_path / "bright" / "config.pbtxt").read_text(), messages.ModelConfig())
    assert (config.name, config.backend, config.max_batch_size) == ("bright", "onnxruntime", 32)
    (images,) = config.input
    assert (images.name, images.data_type, list(images.dims)) == (
        *("images", messages.TYPE_UINT8, [3, SIDE, SIDE]),
    )
    shapes = {output.name: (output.data_type, list(output.dims)) for output in config.output}
    of_labels = (messages.TYPE_FP32, [len(LABELS)])
    assert shapes == {
        "score": of_labels,
        "probability": of_labels,
        "unfamiliarity": (messages.TYPE_FP32, [1]),
        "feature_summary": (messages.TYPE_FP32, [2]),
    }
    assert [bool(output.label_filename) for output in config.output] == [True, True, False, False]
    assert config.output[2].HasField("reshape")
    assert list(config.output[2].reshape.shape) == []
    assert config.dynamic_batching.max_queue_delay_microseconds == 2000
    assert json.loads(config.parameters["labels"].string_value) == list(LABELS)
    assert json.loads(config.parameters["thresholds"].string_value) == [0.5] * 3


def test_the_configuration_follows_the_file(tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(brightness_model(("one", "two")))
    model = OnnxPredictor(path)
    text = triton_config("m", model.metadata, model.output_shapes)
    assert "unfamiliarity" not in text
    assert "feature_summary" not in text
    path.write_bytes(brightness_model(("one", "two", "three"), summary=True))
    model = OnnxPredictor(path)
    line = '{ name: "feature_summary" data_type: TYPE_FP32 dims: [ 2 ] }'
    assert line in triton_config("m", model.metadata, model.output_shapes)
    assert text.count("dims: [ 2 ]") == 2
    assert f"dims: [ 3, {SIDE}, {SIDE} ]" in text
    assert text.isascii()


def test_a_bentoml_service_is_complete(exported: Path, tmp_path: Path):
    folder = tmp_path / "bright"
    service = write_bentoml_service(exported, folder)
    tree = ast.parse(service.read_text())
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    assert found.name == "Classifier"
    bentofile = yaml.safe_load((folder / "bentofile.yaml").read_text())
    assert bentofile["service"] == "service:Classifier"
    assert all((folder / name).is_file() for name in bentofile["include"])


def test_bentoml_runs_the_service(exported: Path, tmp_path: Path, monkeypatch):
    pytest.importorskip("bentoml", reason="BentoML is not installed")
    from importlib.util import module_from_spec, spec_from_file_location

    from PIL import Image

    path = write_bentoml_service(exported, tmp_path / "bright")
    spec = spec_from_file_location("bright_service", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    answer = module.Classifier().predict(Image.fromarray(np.zeros((20, 30, 3), np.uint8)))
    assert [label["label"] for label in answer["labels"]] == list(LABELS)
    assert [label["probability"] for label in answer["labels"]] == [0.5] * 3


@pytest.mark.parametrize("name", ["two words", "12", "Bright"])
def test_a_name_that_the_server_would_refuse(exported: Path, tmp_path: Path, name: str):
    with pytest.raises(InputError, match="the folder's name is the model's"):
        write_bentoml_service(exported, tmp_path / name)
    if name != "Bright":
        with pytest.raises(InputError, match="the folder's name is the model's"):
            write_triton_entry(exported, tmp_path / name)
