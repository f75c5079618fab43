"""A package with a method, a reader, an encoder and a post-hoc part is installed and used by name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from kmcl.errors import InputError
from kmcl.methods import METHODS, LinearHead, Method, MethodOptions
from kmcl.options import METHOD_OPTIONS, PART_OPTIONS
from kmcl.posthoc import PARTS
from kmcl.registry import Registry
from prepared_program import Program

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


RUN_ALL = """
import contextlib, io, json, sys
from kmcl.cli.app import main
answers = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["kmcl", *words]
    printed, errors, status = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(errors):
        try:
            main()
        except SystemExit as ended:
            status = ended.code or 0
    answers.append((status, printed.getvalue(), errors.getvalue()))
print(json.dumps(answers))
"""


class Answer(NamedTuple):
    """What a command gives."""

    status: int
    printed: str
    errors: str


def kmcl(environment: dict[str, str], *commands: list[str]) -> list[Answer]:
    """The commands one after the other in one new process: loading torch takes longer than most of them."""
    command = [sys.executable, "-c", RUN_ALL, json.dumps(commands)]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return [Answer(*answer) for answer in json.loads(result.stdout)]


@pytest.fixture(scope="module")
def trained(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("plugin-run") / "run"
    parts = ["--method", "scaled", "--scale", "2", "--encoder", "one_convolution", "--posthoc", "base_rate"]
    budget = ["--epochs", "2", "--batch-size", "12", "--workers", "0", "--augmentation", "none"]
    (answer,) = kmcl(environment, ["train", "colours", *parts, *budget, "--output", str(run)])
    assert answer.status == 0, answer.errors
    return run


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plugin-image") / "red.png"
    Image.fromarray(np.full((16, 16, 3), [200, 0, 0], dtype=np.uint8)).save(path)
    return path


@pytest.fixture(scope="module")
def answers(environment: dict[str, str], trained: Path, image: Path) -> list[Answer]:
    """Of a process that has not trained: a prediction, a help and a refusal."""
    predict = ["predict", str(trained), str(image), "--json"]
    return kmcl(environment, predict, ["train", "--help"], ["train", "digits", "--scale", "3"])


def test_a_model_of_plugged_in_parts_trains_and_predicts(trained, image, answers, tmp_path):
    model = json.loads((trained / "model" / "model.json").read_text())
    assert model["method"] == {"name": "scaled", "scale": 2.0}
    assert model["encoder"] == "one_convolution"
    assert model["posthoc"] == [{"name": "base_rate", "sizes": {}}]
    predicted = answers[0]
    assert predicted.status == 0, predicted.errors
    assert "green" in predicted.printed
    without = Program(tmp_path / "errors.txt", "predict", str(trained), str(image))
    assert without.wait() == 2
    assert "method must be one of kmcl, asl" in without.errors


def test_the_help_and_errors_know_the_plug_in(answers):
    _, shown, refused = answers
    assert "Method scaled" in shown.printed
    assert "--scale" in shown.printed
    assert refused.status == 2
    assert "method kmcl has no option scale; it is an option of scaled" in refused.errors


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


def test_a_method_for_an_earlier_version_is_told_what_to_give():
    earlier = (
        lambda: Method("summary", MethodOptions, LinearHead, print),
        lambda: Method("summary", MethodOptions, head="a:Head", loss="a:loss"),
        lambda: Method(MethodOptions, build_head="a:Head", compute_loss=print),
    )
    for make in earlier:
        with pytest.raises(TypeError, match="build_head= and compute_loss=, each an object and no text"):
            make()


def test_options_are_those_of_the_methods_and_parts():
    assert {name: method.options for name, method in METHODS.items()} == dict(METHOD_OPTIONS)
    assert {name: part.Options for name, part in PARTS.items()} == dict(PART_OPTIONS)
    assert list(METHODS) == list(METHOD_OPTIONS)


def test_a_plug_in_without_options_is_named(monkeypatch):
    registry: Registry[type] = Registry("method", "kmcl.methods", {}, type, attribute="options")
    monkeypatch.setattr(Registry, "_installed", {"number": EntryPoint("number", "math:pi", "kmcl.methods")})
    with pytest.raises(InputError, match="method 'number' must have options; math:pi is a float"):
        registry.find("number")


def test_a_plug_in_cannot_take_a_name_of_ours(monkeypatch):
    registry: Registry[Method] = Registry(
        "method", "kmcl.methods", {"asl": "kmcl.methods.linear:ASL"}, Method
    )
    monkeypatch.setattr(Registry, "_installed", {"asl": EntryPoint("asl", "math:pi", "kmcl.methods")})
    assert registry.find("asl") is METHODS["asl"]
    assert list(registry) == ["asl"]
