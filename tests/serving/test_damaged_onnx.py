"""An .onnx file with any damage is refused in one sentence, or predicts; without torch."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from kmcl.errors import InputError
from kmcl.models.label_rules import LabelRules
from kmcl.serving.export_metadata import METADATA_KEY, ExportMetadata
from kmcl.serving.onnx_predictor import OnnxPredictor

onnx = pytest.importorskip("onnx", reason="the extra export is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


@pytest.fixture(scope="module")
def content() -> bytes:
    """A model of one label: the mean brightness."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Cast", ["images"], ["values"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["values"], ["mean"], axes=[1, 2], keepdims=0),
        helper.make_node("ReduceMean", ["mean"], ["score"], axes=[1], keepdims=1),
        helper.make_node("Sigmoid", ["score"], ["probability"]),
    ]
    images = helper.make_tensor_value_info("images", TensorProto.UINT8, ["batch", 3, 8, 8])
    outputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 1])
        for name in ("score", "probability")
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "brightness", [images], outputs),
        opset_imports=[helper.make_opsetid("", 13)],
        ir_version=8,
    )
    metadata = ExportMetadata(LabelRules(("bright",)), 8, (0.0,) * 3, (1.0,) * 3, "bce", "none")
    entry = model.metadata_props.add()
    entry.key, entry.value = METADATA_KEY, metadata.to_json()
    return model.SerializeToString()


def scores_of(path: Path, content: bytes) -> np.ndarray:
    path.write_bytes(content)
    return OnnxPredictor(path).score(np.full((2, 8, 8, 3), 3, np.uint8)).score


def test_metadata_that_are_no_text(tmp_path: Path, content: bytes):
    path = tmp_path / "model.onnx"
    assert scores_of(path, content).tolist() == [[3.0], [3.0]]
    damaged = content.replace(b"bright", b"\xff\xfe\xfd\xfc\xfb\xfa")
    with pytest.raises(InputError, match=r"model\.onnx: its metadata are damaged"):
        scores_of(path, damaged)


def test_damage_anywhere(tmp_path: Path, content: bytes):
    rng = random.Random(0)
    num_refused = 0
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 1, 4))):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            scores_of(tmp_path / "model.onnx", bytes(damaged))
        except InputError as error:
            num_refused += 1
            assert "model.onnx: " in str(error)  # noqa: PT017
    assert 100 < num_refused < 400
