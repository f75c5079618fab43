"""A package with a method, a reader, an encoder and a post-hoc part is installed and used by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.errors import InputError
from kmcl.methods import METHODS, Method
from kmcl.registry import Registry

PACKAGE = Path(__file__).parent / "plugin_package"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    """The environment of processes in which the plug-in is installed."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(PACKAGE, folder / "source")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*install, "--target", str(folder / "site"), str(source)], check=True, capture_output=True)
    paths = os.pathsep.join(filter(None, [str(folder / "site"), os.environ.get("PYTHONPATH")]))
    return os.environ | {"PYTHONPATH": paths, "COLUMNS": "120"}


def kmcl(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kmcl", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


def test_a_model_of_plugged_in_parts_trains_and_predicts(environment, tmp_path):
    run = tmp_path / "run"
    parts = ["--method", "scaled", "--scale", "2", "--encoder", "one_convolution", "--posthoc", "base_rate"]
    budget = ["--epochs", "2", "--batch-size", "12", "--workers", "0", "--augmentation", "none"]
    trained = kmcl(environment, "train", "colours", *parts, *budget, "--output", str(run))
    assert trained.returncode == 0, trained.stderr
    model = json.loads((run / "model" / "model.json").read_text())
    assert model["method"] == {"name": "scaled", "scale": 2.0}
    assert model["encoder"] == "one_convolution"
    assert model["posthoc"] == [{"name": "base_rate", "sizes": {}}]
    image = tmp_path / "red.png"
    Image.fromarray(np.full((16, 16, 3), [200, 0, 0], dtype=np.uint8)).save(image)
    predicted = kmcl(environment, "predict", str(run), str(image), "--json")
    assert predicted.returncode == 0, predicted.stderr
    assert "green" in predicted.stdout
    without = kmcl(dict(os.environ), "predict", str(run), str(image))
    assert without.returncode == 2
    assert "method must be one of kmcl, asl" in without.stderr


def test_the_help_and_errors_know_the_plug_in(environment):
    shown = kmcl(environment, "train", "--help").stdout
    assert "Method scaled" in shown
    assert "--scale" in shown
    refused = kmcl(environment, "train", "digits", "--scale", "3")
    assert refused.returncode == 2
    assert "method kmcl has no option scale; it is an option of scaled" in refused.stderr


def test_a_broken_plug_in_is_named(monkeypatch):
    registry: Registry[Method] = Registry("method", "kmcl.methods", {}, Method)
    entries = {
        "lost": EntryPoint("lost", "no_such_module:METHOD", "kmcl.methods"),
        "number": EntryPoint("number", "math:pi", "kmcl.methods"),
    }
    monkeypatch.setattr(Registry, "_installed", entries)
    assert list(registry) == ["lost", "number"]
    with pytest.raises(
        InputError, match=r"method 'lost' of a package \(no_such_module:METHOD\) cannot be loaded"
    ):
        registry.find("lost")
    with pytest.raises(InputError, match="method 'number' must be a Method; got float"):
        registry.find("number")
    with pytest.raises(
        InputError, match=r"method must be one of lost, number; got 'loss' \(did you mean 'lost'"
    ):
        registry.find("loss")


def test_a_plug_in_cannot_take_a_name_of_ours(monkeypatch):
    registry: Registry[Method] = Registry(
        "method", "kmcl.methods", {"asl": "kmcl.methods.asl:METHOD"}, Method
    )
    monkeypatch.setattr(Registry, "_installed", {"asl": EntryPoint("asl", "math:pi", "kmcl.methods")})
    assert registry.find("asl") is METHODS["asl"]
    assert list(registry) == ["asl"]
