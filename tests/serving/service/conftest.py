"""A small calibrated model with everything a trained one has, and images to send it."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from starlette.testclient import TestClient

from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options import read_options
from kmcl.serving import Predictor, throughput
from kmcl.serving.export import export_model
from kmcl.serving.service.application import create_application
from kmcl.serving.service.settings import ServiceSettings
from made_once import made_once

LABELS = ("ant", "bee", "cat & dog", "emu")


def make_predictor(method: str = "kmcl") -> Predictor:
    """Random weights that tell images apart, and everything that is fitted for the labels."""
    torch.manual_seed(0)
    precision = np.diag([0.02, 0.03, 0.01])[np.tril_indices(3)].tolist()
    description = ModelDescription(
        rules=LabelRules(
            LABELS,
            thresholds=(0.4, 0.5, 0.6, 0.55),
            temperatures=(0.5, 1.0, 2.0, 1.5),
            biases=(-1.0, 0.0, 1.0, 0.5),
            probability_intervals=tuple((*precision, 0.1, 0.2) for _ in LABELS),
            cooccurrence=(((1, 0.75), (3, 0.25)), ((0, 0.5),), (), ((2, 0.3),)),
        ),
        method=read_options({"name": method} | ({"kernel": "isotropic"} if method == "kmcl" else {})),
        encoder="test_convnext",
        image_size=32,
    )
    classifier = build_classifier(description).eval()
    with torch.no_grad():
        for parameter in classifier.head.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.3)
    return Predictor(classifier, description)


def encode(pixels: np.ndarray, file_format: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, file_format)
    return buffer.getvalue()


def make_image(seed: int, height: int = 40, width: int = 48, file_format: str = "PNG") -> bytes:
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (5, 6, 3), dtype=np.uint8)
    return encode(np.asarray(Image.fromarray(small).resize((width, height))), file_format)


@pytest.fixture(scope="session")
def predictor() -> Predictor:
    return make_predictor()


@pytest.fixture(scope="session")
def exported(tmp_path_factory) -> Path:
    """The same model as an ONNX file."""
    pytest.importorskip("onnx", reason="the extra export is not installed")

    def export(folder: Path) -> None:
        folder.mkdir()
        images = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
        export_model(make_predictor(), folder / "model.onnx", images)

    return made_once(tmp_path_factory, "exported", export) / "model.onnx"


@pytest.fixture
def cores(monkeypatch) -> Callable[[int], None]:
    """Sets how many cores there seem to be for the threads of a model."""
    return lambda number: monkeypatch.setattr(throughput, "available_cores", lambda: number)


@pytest.fixture
def client_of(predictor: Predictor) -> Iterator[Callable[..., TestClient]]:
    """A client of a service with settings of one's own; it is shut down at the end."""
    opened = []

    def open_client(model: object = predictor, cutoff: float | None = None, **settings: object) -> TestClient:
        limits = ServiceSettings(**settings)  # type: ignore[arg-type]
        client = TestClient(create_application(model, limits, "bugs", cutoff))  # type: ignore[arg-type]
        client.__enter__()
        opened.append(client)
        return client

    yield open_client
    for client in opened:
        client.__exit__(None, None, None)


@pytest.fixture
def client(client_of: Callable[..., TestClient]) -> TestClient:
    return client_of()
