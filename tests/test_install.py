"""What an install without torch can do: predict from an exported file, and say what else to install."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

from kmcl.cli.missing_packages import EXTRA_OF_PACKAGE, explain_missing_package
from kmcl.data import open_dataset
from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier
from kmcl.options.methods import KmclOptions
from kmcl.serving import Predictor
from kmcl.serving.export import export_model

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TOOLS = {"docs", "dev", "all"}
"""Extras that no command of the program needs."""

NOT_NAMED = {"offline-weights", "mlflow", "wandb", "s3", "litdata", "ray"}
"""Extras whose absence the code that uses them explains itself."""

RUN_WITHOUT = """
import sys

refused = set(sys.argv.pop(1).split(","))

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in refused:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refuse())
sys.argv[0] = "kmcl"
from kmcl.cli.app import main
main()
"""


@cache
def distributions_of_modules() -> dict[str, list[str]]:
    return dict(metadata.packages_distributions())


def requirements(*extras: str) -> list[Requirement]:
    """Base requirements of the project, and those of some of its extras, as pyproject.toml has them."""
    texts = [*PROJECT["dependencies"]]
    for extra in extras:
        texts += PROJECT["optional-dependencies"][extra]
    return [Requirement(text) for text in texts]


def importable_names(wanted: list[Requirement]) -> set[str]:
    """Top-level modules of distributions and of all that these require in turn."""
    found: set[str] = set()
    while wanted:
        requirement = wanted.pop()
        name = canonicalize_name(requirement.name)
        environments = [default_environment() | {"extra": extra} for extra in requirement.extras or {""}]
        if requirement.marker and not any(requirement.marker.evaluate(env) for env in environments):
            continue
        if name not in found:
            found.add(name)
            try:
                required = metadata.requires(name) or []
            except metadata.PackageNotFoundError:
                continue
            wanted += [r for r in map(Requirement, required) if "extra" not in str(r.marker or "")]
    modules = distributions_of_modules()
    return {
        module for module, names in modules.items() if any(canonicalize_name(name) in found for name in names)
    }


def run_with(extras: tuple[str, ...], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process that can import what these extras install and no other distribution."""
    refused = distributions_of_modules().keys() - importable_names(requirements(*extras)) - {"kmcl"}
    command = [sys.executable, "-c", RUN_WITHOUT, ",".join(refused), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Path, Predictor]:
    """A small model as ONNX, and two scenes to predict."""
    pytest.importorskip("onnxscript", reason="the extra export is not installed")
    folder = tmp_path_factory.mktemp("exported")
    digits = open_dataset("digits", size=60)
    torch.manual_seed(0)
    description = ModelDescription(
        LabelRules(digits.labels, (0.4,) * 10), KmclOptions(), encoder="small_convnet", image_size=32
    )
    predictor = Predictor(build_classifier(description), description)
    scenes = [digits.splits["test"].images.load(index)[:32, :32] for index in range(4)]
    export_model(predictor, folder / "model.onnx", np.stack(scenes))
    (folder / "photos").mkdir()
    for index, scene in enumerate(scenes[:2]):
        Image.fromarray(scene).save(folder / "photos" / f"{index}.png")
    return folder / "model.onnx", folder / "photos", predictor


def test_an_exported_model_predicts_with_the_extra_onnx_alone(exported):
    model, photos, predictor = exported
    assert "torch" not in importable_names(requirements("onnx"))
    result = run_with(("onnx",), "predict", str(model), str(photos), "--json")
    assert result.returncode == 0, result.stderr
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    expected = predictor.predict([photos / "0.png", photos / "1.png"])
    for line, ours in zip(lines, expected, strict=True):
        probabilities = [label.probability for label in ours.labels]
        assert [label["probability"] for label in line["labels"]] == pytest.approx(probabilities, abs=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digits"], "kmcl: this needs torch: pip install 'kmcl[train]'\n"),
        (["predict", "{run}", "{photos}"], "kmcl: this needs torch: pip install 'kmcl[train]'\n"),
        (["export", "{run}"], "kmcl: this needs torch: pip install 'kmcl[train]'\n"),
        (["report", "{run}"], "pip install 'kmcl[train]'\n"),
        (["data", "describe", "digits"], "pip install 'kmcl[train]'\n"),
        (["figure", "similarity"], "pip install 'kmcl[train]'\n"),
        (["serve", "{model}"], "kmcl: this needs fastapi: pip install 'kmcl[serve]'\n"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_that_needs_torch_says_what_to_install(arguments, message, exported, tmp_path):
    (tmp_path / "model").mkdir()
    named = [text.format(run=tmp_path, model=exported[0], photos=exported[1]) for text in arguments]
    result = run_with(("onnx",), *named)
    assert result.returncode == 2, result.stderr
    assert result.stderr.endswith(message)
    assert result.stderr.count("\n") == 1


def test_an_onnx_file_without_the_extra_says_what_to_install(exported):
    model, photos, _ = exported
    result = run_with((), "predict", str(model), str(photos))
    assert result.returncode == 2
    assert result.stderr == f"kmcl: {model}: an .onnx file needs onnxruntime: pip install 'kmcl[onnx]'\n"


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["train", "--help"]], ids=" ".join)
def test_help_needs_the_base_alone(arguments):
    result = run_with((), *arguments)
    assert result.returncode == 0, result.stderr
    assert "kmcl " in result.stdout


def test_every_package_of_an_extra_is_named_with_that_extra():
    distributions = distributions_of_modules()
    for module, extra in EXTRA_OF_PACKAGE.items():
        asked = {canonicalize_name(r.name) for r in requirements(extra)}
        assert asked & {canonicalize_name(name) for name in distributions[module]}, (module, extra)
    covered = {canonicalize_name(name) for module in EXTRA_OF_PACKAGE for name in distributions[module]}
    for extra in PROJECT["optional-dependencies"].keys() - TOOLS - NOT_NAMED:
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            assert canonicalize_name(requirement.name) in covered | {"kmcl"}, (extra, requirement.name)


def test_a_module_of_no_extra_stays_an_error():
    assert explain_missing_package(ModuleNotFoundError("No module named 'nonsense'", name="nonsense")) is None
    deep = ModuleNotFoundError("No module named 'torch.nn'", name="torch.nn")
    assert explain_missing_package(deep) == "this needs torch: pip install 'kmcl[train]'"


def test_every_requirement_is_pinned_for_the_tested_install():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {canonicalize_name(line.partition("==")[0]) for line in lines if "==" in line}
    asked = {canonicalize_name(r.name) for r in requirements(*PROJECT["optional-dependencies"])}
    assert asked - pinned == {"kmcl"}


@pytest.mark.slow
def test_a_fresh_environment_predicts_without_torch(exported, tmp_path):
    """The install itself, in an environment of its own and outside the checkout."""
    model, photos, _ = exported
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    install = [programs / "pip", "install", "--quiet", "-c", ROOT / "constraints.txt", f"{ROOT}[onnx]"]
    subprocess.run(install, check=True, cwd=tmp_path)

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    listed = run(programs / "pip", "list").stdout
    assert "onnxruntime" in listed
    assert not re.search(r"^(torch|timm|pandas|onnx)\s", listed, re.MULTILINE)
    predicted = run(programs / "kmcl", "predict", model, photos, "--csv")
    assert predicted.returncode == 0, predicted.stderr
    assert len(predicted.stdout.splitlines()) == 1 + 2 * 10
    refused = run(programs / "kmcl", "train", "digits")
    assert (refused.returncode, refused.stderr) == (2, "kmcl: this needs torch: pip install 'kmcl[train]'\n")
