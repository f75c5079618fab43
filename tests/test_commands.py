"""A command and its function in `kmcl.api` take the same arguments, and give and write the same."""

from __future__ import annotations

import csv
import inspect
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

import kmcl
from asl_network import KmclNetwork, randomise
from kmcl import api
from kmcl.cli.app import COMMANDS, load_command, make_app
from kmcl.errors import InputError
from kmcl.runs.resolution import setting_names
from kmcl.serving import OnnxPredictor
from kmcl.serving.service.settings import ServiceSettings
from kmcl.studies.variants import DEFAULTS
from made_once import made_once
from tiny_runs import TINY_CACHED

IN_PYTHON = {"progress", "encoder"}
"""Arguments that only functions have."""


@dataclass(frozen=True)
class World:
    """What the commands are given.

    run:     a small trained run
    images:  a folder of pictures
    table:   these pictures with labels
    scores:  the model's predictions of the pictures
    """

    run: Path
    images: Path
    table: Path
    scores: Path
    findings: Path
    checkpoint: Path


@dataclass(frozen=True)
class Pair:
    """A command and its function.

    arguments: of the command, with the fields of the world in braces
    call:      the function with the same arguments
    printed:   what the command prints of the result as JSON; None: only files are compared
    shown:     the command's own arguments, which only change what is printed
    given:     those of the function for which the command has others
    """

    function: str
    arguments: str
    call: Callable[[World], Any]
    printed: Callable[[Any], Any] | None = None
    shown: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)


PAIRS = {
    "evaluate": Pair(
        "evaluate_runs",
        "{run} --data {table} --split all --guarantee recall=0.5 --resamples 100 --seed 4 --json",
        lambda of: api.evaluate_runs(
            of.run, data=of.table, split="all", guarantee="recall=0.5", resamples=100, seed=4, progress=False
        ),
        lambda found: found.to_json(),
        shown={"as_json", "published"},
    ),
    "predict": Pair(
        "predict",
        "{run} {images} --output scores.parquet --sigma --guarantee recall=0.5 --batch-size 3",
        lambda of: api.predict(
            of.run,
            of.images,
            output="scores.parquet",
            sigma=True,
            guarantee="recall=0.5",
            batch_size=3,
            progress=False,
        ),
        shown={"as_json", "as_csv"},
        given={"form"},
    ),
    "report": Pair(
        "report",
        "{run} --output page --num-images 2 --num-masked 2 --seed 1",
        lambda of: api.report(of.run, output="page", num_images=2, num_masked=2, seed=1, progress=False),
        shown={"open_"},
    ),
    "explain": Pair(
        "explain",
        "{run} {images}/0.png --label seven --output page",
        lambda of: api.explain(of.run, of.images / "0.png", labels=["seven"], output="page"),
        shown={"open_"},
    ),
    "export": Pair(
        "export",
        "{run} --output model.onnx --images 4 --json",
        lambda of: api.export(of.run, output="model.onnx", images=4),
        lambda written: {**asdict(written.report), "bytes": 0},
        shown={"as_json"},
    ),
    "monitor": Pair(
        "monitor",
        "{run} {scores} --output drift --false-alarms 0.02 --json",
        lambda of: api.monitor(of.run, of.scores, output="drift", false_alarms=0.02),
        lambda monitored: monitored.to_json(),
        shown={"as_json", "open_", "fail_on_drift"},
    ),
    "select": Pair(
        "select",
        "{run} {images} --count 3 --strategy uncertain --seed 2",
        lambda of: api.select(of.run, of.images, count=3, strategy="uncertain", seed=2, progress=False),
        shown={"open_"},
    ),
    "add-label": Pair(
        "add_label",
        "{run} {images}/0.png {images}/1.png {images}/2.png --name new --output added --share 0.1",
        lambda of: api.add_label(
            of.run,
            [of.images / f"{k}.png" for k in range(3)],
            name="new",
            output="added",
            share=0.1,
            progress=False,
        ),
    ),
    "import-released": Pair(
        "import_released",
        "{checkpoint} --output model --image-size 64 --threshold 0.7",
        lambda of: api.import_released(of.checkpoint, output="model", image_size=64, threshold=0.7),
    ),
    "complexity": Pair(
        "complexity",
        "--encoder test_resnet --labels 3 --image-size 64 --json",
        lambda of: api.complexity("test_resnet", labels=3, image_size=64),
        lambda rows: [asdict(row) for row in rows],
        shown={"as_json", "paper"},
    ),
    "figure predictions": Pair(
        "draw_predictions",
        "{run} --num-images 2 --seed 3",
        lambda of: api.draw_predictions(of.run, num_images=2, seed=3),
    ),
    "figure similarity": Pair(
        "draw_similarity", "--output figure", lambda of: api.draw_similarity(output="figure")
    ),
    "data describe": Pair(
        "describe_data",
        "{table} --option subset=8 --figures shown --json",
        lambda of: api.describe_data(of.table, options={"subset": 8}, figures="shown"),
        lambda described: asdict(described.description),
        shown={"as_json"},
    ),
    "data check": Pair(
        "check_data",
        "{table} --option subset=8 --threads 1 --json",
        lambda of: api.check_data(of.table, options={"subset": 8}, threads=1, progress=False),
        asdict,
        shown={"as_json"},
    ),
    "data convert": Pair(
        "convert_data",
        "{table} coco:converted --option subset=8",
        lambda of: api.convert_data(of.table, "coco:converted", options={"subset": 8}, progress=False),
    ),
    "data shard": Pair(
        "shard_data",
        "{table} sharded --images 5 --option subset=8",
        lambda of: api.shard_data(of.table, "sharded", images=5, options={"subset": 8}, progress=False),
    ),
    "data audit": Pair(
        "audit",
        "{table} --run {run} --count 4 --seed 5",
        lambda of: api.audit(of.table, run=of.run, count=4, seed=5, progress=False),
        shown={"open_"},
    ),
    "data correct": Pair(
        "correct",
        "{table} {findings} --output corrected.csv",
        lambda of: api.correct(of.table, of.findings, "corrected.csv"),
    ),
}
QUICK = {
    "encoder": "test_resnet",
    "weights": "none",
    "image_size": 16,
    "epochs": 1,
    "workers": 0,
    "log": "csv",
}
FLAGS = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in QUICK.items())
STUDY = {"options": {"size": "60"}, "output": "study", "seeds": [0], "progress": False, **QUICK}
STUDIES = {
    "compare": Pair(
        "compare",
        f"digits -o size=60 --output study --seeds 0 --methods asl,bce --reference bce {FLAGS}",
        lambda of: api.compare("digits", ["asl", "bce"], reference="bce", **STUDY),
    ),
    "study data-size": Pair(
        "study",
        f"digits -o size=60 --output study --seeds 0 --methods asl --fractions 0.5,1 --same-steps {FLAGS}",
        lambda of: api.study(
            "data-size", "digits", methods=["asl"], fractions=[0.5, 1.0], same_steps=True, **STUDY
        ),
    ),
}
"""Each training has a process of its own."""
APART = {"train": api.train, "serve": api.serve, "push": api.push}
"""With tests of their own below."""
OF_STUDIES = {"study kernels", "study terms", "study data-size", "study weights"}


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    folder = tmp_path_factory.mktemp("given")

    def make(run: Path) -> None:
        api.train(
            "digits",
            output=run,
            options={"size": 120},
            progress=False,
            cache_dir=tmp_path_factory.mktemp("cache"),
            posthoc="frozen_gp,kernel_vote,unfamiliarity",
            kernel="isotropic",
            **{name: value for name, value in TINY_CACHED.items() if name != "data_options"},
        )

    run = made_once(tmp_path_factory, "add-label-run", make)
    scenes = kmcl.open_dataset("digits", size=40)
    rows = [("image", *scenes.labels)]
    (folder / "images").mkdir()
    for split in scenes.splits.values():
        for place in range(len(split)):
            name = f"images/{len(rows) - 1}.png"
            Image.fromarray(split.images.load(place)).save(folder / name)
            rows.append((name, *split.targets[place].tolist()))
    table = folder / "labels.csv"
    with table.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    api.predict(run, folder / "images", output=folder / "scores.csv", progress=False)
    findings = folder / "findings.csv"
    findings.write_text(f"image,label,suggested,decision\n{folder}/{rows[1][0]},{rows[0][1]},1,accept\n")
    return World(run, folder / "images", table, folder / "scores.csv", findings, folder / "released.pth")


@pytest.fixture
def written_twice(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Pair, str], tuple[Any, Any]]]:
    """Runs a command and its function, each in a folder of its own; gives what both return."""

    def run(pair: Pair, words: str) -> tuple[Any, Any]:
        (tmp_path / "command").mkdir()
        (tmp_path / "function").mkdir()
        monkeypatch.chdir(tmp_path / "command")
        arguments = [*words.split(), *pair.arguments.format(**vars(world)).split()]
        result = CliRunner().invoke(make_app(), arguments, catch_exceptions=False)
        monkeypatch.chdir(tmp_path / "function")
        return result, pair.call(world)

    return run


@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("words", PAIRS)
def test_a_command_does_what_its_function_does(words: str, world: World, written_twice, tmp_path: Path):
    if words == "import-released":
        network = KmclNetwork("tresnet_m", 20).eval()
        randomise(network, seed=0)
        torch.save(network.state_dict(), world.checkpoint)
    pair = PAIRS[words]
    result, returned = written_twice(pair, words)
    assert result.exit_code in (0, 1), result.output
    if pair.printed is not None:
        printed = json.loads(re.sub(r'"bytes": \d+', '"bytes": 0', result.stdout))
        assert printed == json.loads(json.dumps(pair.printed(returned)))
    by_command, by_function = (contents(tmp_path / name) for name in ("command", "function"))
    assert list(by_command) == list(by_function)
    assert [name for name in by_command if by_command[name] != by_function[name]] == []
    assert by_command or pair.printed is not None


@pytest.mark.usefixtures("quick_figures")
@pytest.mark.parametrize("words", STUDIES)
def test_a_study_is_the_same_by_command_and_function(words: str, world: World, written_twice, tmp_path: Path):
    result, returned = written_twice(STUDIES[words], words)
    assert result.exit_code == 0, result.output
    assert not returned.failures
    names = ("study.yaml", "comparison.csv", "data-size.csv")
    by_command, by_function = (contents(tmp_path / name / "study") for name in ("command", "function"))
    assert list(by_command) == list(by_function)
    compared = [name for name in by_command if name in names or name.endswith("settings.yaml")]
    assert len(compared) == 4
    for name in compared:
        assert by_command[name] == by_function[name], name


@pytest.mark.parametrize("words", ["compare", *sorted(OF_STUDIES)])
def test_a_study_has_the_arguments_of_its_function(words: str):
    function = defaults(api.compare if words == "compare" else api.study)
    command = {
        "options" if name == "option" else name: value
        for name, value in defaults(commands()[words]).items()
        if name == "data" or name not in setting_names()
    }
    assert command.items() <= function.items()
    own = set().union(*(DEFAULTS[each] for each in OF_STUDIES)) - set(DEFAULTS[words])
    assert function.keys() - command.keys() == ({"progress", "settings", "kind"} | own) & function.keys()


def contents(folder: Path) -> dict[str, Any]:
    """Every file by its path."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): content(path) for path in files}


def content(path: Path) -> Any:
    """Its bytes without times; of an exported model its metadata, since torch never writes the same bytes."""
    if path.suffix == ".onnx":
        return OnnxPredictor(path).metadata
    return re.sub(rb'"(bytes|\w*seconds)": [\d.e-]+', b"", path.read_bytes())


def commands() -> dict[str, Callable[..., None]]:
    """The Python function of every command, by the words that call it."""
    found: dict[str, Callable[..., None]] = {}
    for name, listed in COMMANDS.items():
        module, _, attribute = listed.command.partition(":")
        one = getattr(import_module(module), attribute)
        if isinstance(one, typer.Typer):
            for below in one.registered_commands:
                assert below.callback is not None
                found[f"{name} {below.name or below.callback.__name__}"] = below.callback
        else:
            found[name] = one
    return found


def test_every_command_has_a_function():
    assert set(commands()) == {"train", "compare"} | set(PAIRS) | set(APART) | OF_STUDIES
    assert {pair.function for pair in PAIRS.values()} <= set(api.__all__)


@pytest.mark.parametrize("words", PAIRS)
def test_a_command_has_the_arguments_and_defaults_of_its_function(words: str):
    pair = PAIRS[words]
    command = defaults(commands()[words])
    function = defaults(getattr(api, pair.function))
    assert command.keys() - function.keys() == pair.shown
    assert function.keys() - command.keys() - IN_PYTHON == pair.given
    for name in command.keys() & function.keys():
        assert command[name] == function[name], name


def defaults(function: Callable[..., Any]) -> dict[str, object]:
    """The default of each parameter, in one form for both; of a required one a word that says so."""
    parameters = inspect.signature(function).parameters.values()
    found = {one.name: one.default for one in parameters if one.name != "context"}
    return {
        name: "required" if value is inspect.Parameter.empty else plain(value)
        for name, value in found.items()
    }


def plain(value: object) -> object:
    if isinstance(value, Path | Enum):
        return str(value)
    return None if value in ((), []) else value


def test_the_list_of_commands_has_the_first_sentences_of_their_help():
    for name, listed in COMMANDS.items():
        help_ = load_command(name).help
        assert " ".join(help_.split("\n\n")[0].split()) == listed.summary


def test_the_service_has_the_same_settings(world: World, monkeypatch):
    pytest.importorskip("fastapi", reason="the extra serve is not installed")
    served: list[dict[str, Any]] = []

    def keep(predictor: Any, settings: ServiceSettings, opened: Any, **others: Any) -> None:
        opened.close()
        served.append({"settings": settings, "labels": predictor.labels, **others})

    monkeypatch.setattr("kmcl.serving.service.server.serve_until_stopped", keep)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    own = {"port": port, "engine": "torch", "progress": False}
    limits = {"abstain": 0.1, "max_images": 7, "max_body_bytes": 3 * 2**20, "timeout": 5, "access_log": True}
    for flags, given in (
        ("", {}),
        ("--abstain 0.1 --max-images 7 --max-body 3 --timeout 5 --access-log --allowed-host me", limits),
    ):
        arguments = f"serve {world.run} --port {port} --engine torch {flags}".split()
        assert CliRunner().invoke(make_app(), arguments, catch_exceptions=False).exit_code == 0
        api.serve(world.run, **own, **given, allowed_hosts=["me"] if given else ())
    for by_command, by_function in (served[:2], served[2:]):
        np.testing.assert_equal(tuple(by_command.pop("val")), tuple(by_function.pop("val")))
        assert by_command == by_function
    assert served[0]["settings"] == ServiceSettings(allowed_hosts=served[0]["settings"].allowed_hosts)
    command, function = defaults(commands()["serve"]), defaults(api.serve)
    for name in command.keys() & function.keys():
        assert command[name] == function[name], name


def test_a_model_is_not_published_under_a_name_that_is_none(world: World):
    def refusal(publish: Callable[[], Any]) -> str:
        with pytest.raises(InputError) as refused:
            publish()
        return str(refused.value)

    arguments = ["push", str(world.run), "digits"]
    by_command = refusal(lambda: CliRunner().invoke(make_app(), arguments, catch_exceptions=False))
    assert by_command == refusal(lambda: api.push(world.run, "digits"))
    assert defaults(commands()["push"]) == defaults(api.push)


def test_train_does_what_its_function_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Plans of both are compared in training/test_golden_plans.py."""
    monkeypatch.chdir(tmp_path)
    words = (
        "train digits --option size=120 --encoder small_convnet --epochs 2 --method asl --workers 0 --log csv"
    )
    assert CliRunner().invoke(make_app(), [*words.split(), "--output", "command"]).exit_code == 0
    given = {"encoder": "small_convnet", "epochs": 2, "method": "asl", "workers": 0, "log": "csv"}
    api.train("digits", options={"size": "120"}, output="function", progress=False, **given)
    for file in ("plan.yaml", "settings.yaml", "metrics.json", "model/model.json", "model/model.safetensors"):
        assert (tmp_path / "command" / file).read_bytes() == (tmp_path / "function" / file).read_bytes(), file
    shown = CliRunner().invoke(make_app(), [*words.split(), "--show-settings"]).output
    assert shown == api.show_settings("digits", options={"size": "120"}, **given)
    planned = api.plan("digits", options={"size": "120"}, **given).settings
    assert planned.to_yaml() == (tmp_path / "function" / "plan.yaml").read_text()
