"""The engine of a served model: its conversion for onnxruntime, cached and checked, or torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kmcl.errors import InputError
from kmcl.serving import OnnxPredictor, Predictor
from kmcl.serving import engine as module
from kmcl.serving.engine import ConvertedPredictor, _digest, with_engine
from kmcl.serving.engine_choice import Engine

from .conftest import make_image, make_predictor
from .talking import send

IMAGES = np.random.default_rng(1).integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    pytest.importorskip("onnxscript", reason="the extra export is not installed")
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def said(cache: Path, monkeypatch) -> list[str]:
    monkeypatch.setenv("KMCL_CACHE", str(cache))
    return []


def cached_files(cache: Path) -> list[Path]:
    return sorted((cache / "served").glob("*"))


def test_a_model_is_converted_once_and_gives_the_scores_of_torch(predictor, cache, said):
    converted = with_engine(predictor, Engine.auto, said.append)
    assert isinstance(converted, ConvertedPredictor)
    for ours, theirs in zip(converted.score(IMAGES), predictor.score(IMAGES), strict=True):
        if theirs is None:  # unfamiliarity, which this model does not give
            assert ours is None
        else:
            np.testing.assert_allclose(ours, theirs, atol=1e-5)
    photo = np.random.default_rng(2).integers(0, 256, (90, 70, 3), dtype=np.uint8)
    np.testing.assert_array_equal(converted.resize(photo), predictor.resize(photo))
    said.clear()
    assert isinstance(with_engine(make_predictor(), Engine.auto, said.append), ConvertedPredictor)
    assert said == []
    assert len(cached_files(cache)) == 1


@pytest.mark.parametrize("damage", ["cut", "another model's"])
def test_a_cached_file_that_is_not_the_model_is_replaced(predictor, cache, said, damage):
    with_engine(predictor, Engine.auto, said.append)
    whole = (cache / "served" / f"{_digest(predictor)}.onnx").read_bytes()
    other = Predictor(
        predictor.classifier,
        replace(predictor.description, rules=replace(predictor.rules, biases=(0.3,) * 4)),
    )
    content = whole[: len(whole) // 2] if damage == "cut" else whole
    (cache / "served" / f"{_digest(other)}.onnx").write_bytes(content)
    said.clear()
    converted = with_engine(other, Engine.auto, said.append)
    assert len(said) == 1
    assert "converting the model" in said[0]
    expected = other.score(IMAGES).probability
    np.testing.assert_allclose(converted.score(IMAGES).probability, expected, atol=1e-5)
    (cache / "served" / f"{_digest(other)}.onnx").unlink()


def test_the_service_answers_as_with_torch_and_still_explains(predictor, client_of, said):
    converted = with_engine(predictor, Engine.onnxruntime, said.append)
    answers = [send(client_of(one), make_image(0), saliency=True).json() for one in (predictor, converted)]
    ours, theirs = (answer["images"][0]["labels"] for answer in answers)
    for label, expected in zip(ours, theirs, strict=True):
        for key, value in expected.items():
            if isinstance(value, float):
                assert label[key] == pytest.approx(value, abs=1e-4)
            elif key != "saliency":
                assert label[key] == value
        assert (label["saliency"] is None) == (expected["saliency"] is None)
    assert any(label["saliency"] for label in ours)


def test_torch_stays_torch(predictor, said):
    assert with_engine(predictor, Engine.torch, said.append) is predictor
    assert said == []


def test_an_exported_file_stays_as_it_is(exported: Path, said):
    predictor = OnnxPredictor(exported)
    assert with_engine(predictor, Engine.auto, said.append) is predictor
    with pytest.raises(InputError, match="needs the engine onnxruntime"):
        with_engine(predictor, Engine.torch, said.append)


def test_where_it_cannot_be_kept_auto_stays_in_torch_and_says_why(predictor, tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("KMCL_CACHE", str(tmp_path / "file"))
    said: list[str] = []
    assert with_engine(predictor, Engine.auto, said.append) is predictor
    assert "the model stays in torch: " in said[-1]
    assert "cannot be written" in said[-1]
    with pytest.raises(InputError, match="cannot be written"):
        with_engine(predictor, Engine.onnxruntime, said.append)


def test_without_the_converter_auto_is_torch(predictor, said, monkeypatch):
    monkeypatch.setattr(module, "CONVERTERS", ("onnxruntime", "no_such_package"))
    assert with_engine(predictor, Engine.auto, said.append) is predictor
    with pytest.raises(InputError, match=r"needs no_such_package, not installed: pip install"):
        with_engine(predictor, Engine.onnxruntime, said.append)
