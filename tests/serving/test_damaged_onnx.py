"""An .onnx file with any damage is refused in one sentence, or predicts; without torch."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from brightness_onnx import brightness_model
from kmcl.errors import InputError
from kmcl.serving.onnx_predictor import OnnxPredictor

onnx = pytest.importorskip("onnx", reason="the extra export is not installed")
pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")


@pytest.fixture(scope="module")
def content() -> bytes:
    return brightness_model()


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
