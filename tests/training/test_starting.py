"""The start of a run: what its settings hold, and what is left of one that fails."""

from __future__ import annotations

import contextlib
import csv
import errno
import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from rich.console import Console
from torch import nn

import kmcl
from full_disk import no_room
from kmcl.cli.app import make_app
from kmcl.data import open_dataset
from kmcl.encoders.timm_encoder import TimmEncoders
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.features.run_data import RunData
from kmcl.reports.run_parts import RunParts
from kmcl.runs.dataset import absolute_paths
from kmcl.runs.folder import RunFolder
from kmcl.runs.planning import Facts
from kmcl.runs.resolution import resolve_settings
from kmcl.storage.atomic import WriteError, replacing
from kmcl.training.machine import ThisMachine
from kmcl.training.plan import Plan, print_header
from planned_runs import Planned, planning_only
from settings_runs import resume, train

BUDGET = {"encoder": "small_convnet", "image_size": 16, "epochs": 1, "workers": 0, "batch_size": 4}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Twelve images in train, four in val and test each."""
    rng = np.random.default_rng(0)
    rows = []
    for number in range(20):
        colours = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(colours).save(tmp_path / f"{number}.png")
        split = "train" if number < 12 else "val" if number < 16 else "test"
        rows.append([f"{number}.png", split, number % 2, (number // 2) % 2])
    with (tmp_path / "my.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", "split", "odd", "high"], *rows])
    return tmp_path / "my.csv"


def test_the_header_has_the_notes_of_the_reader():
    dataset = replace(open_dataset("digits", size=30), notes=("left out: [two] files",))
    console = Console(file=io.StringIO(), width=200)
    print_header(
        console, Plan(resolve_settings("digits"), Facts(dataset, TimmEncoders()), "recipe"), Path("runs/x")
    )
    assert "note    left out: [two] files\n" in console.file.getvalue()


def test_command_and_function_name_the_folder_of_a_run_alike(table: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text("method: asl\noptimisation:\n  seed: 3\n")
    starts = {
        "my": [
            lambda: make_app()(["train", "my.csv", "--config", "mine.yaml"], standalone_mode=False),
            lambda: kmcl.train("my.csv", config="mine.yaml"),
        ],
        "dataframe": [lambda: kmcl.train(pd.read_csv("my.csv"), config="mine.yaml")],
        "pictures": [
            lambda: kmcl.train(open_dataset(pd.read_csv("my.csv"), name="pictures"), config="mine.yaml")
        ],
    }
    for data, calls in starts.items():
        for call in calls:
            said = io.StringIO()
            with planning_only(), contextlib.redirect_stdout(said), pytest.raises(Planned):
                call()
            folder = said.getvalue().partition("\nfolder  ")[2].partition("\n")[0]
            assert re.fullmatch(rf"runs/{data}-asl-seed3-\d{{8}}-\d{{6}}", folder)


def test_paths_become_absolute(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = resolve_settings("my.csv", flags={"cache_dir": Path("cache"), "data_options": {"seed": 3}})
    cache = str(tmp_path / "cache")
    assert absolute_paths(settings) == {"data": f"table:{tmp_path}/my.csv", "cache_dir": cache}
    assert absolute_paths(resolve_settings("digits")) == {"data": "digits"}
    assert absolute_paths(resolve_settings("voc2007:../VOC")) == {"data": f"voc2007:{tmp_path.parent}/VOC"}
    assert absolute_paths(resolve_settings("hf:owner/pets")) == {"data": "hf:owner/pets"}
    (tmp_path / "owner" / "pets").mkdir(parents=True)
    assert absolute_paths(resolve_settings("hf:owner/pets")) == {"data": f"hf:{tmp_path}/owner/pets"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoder": "no_such_encoder"}, "no_such_encoder"),
        ({"encoder": "test_vit", "weights": "none", "frozen_stages": 99}, "99"),
        ({"data_options": {"surprise": 1}}, "surprise"),
        ({"batch_size": 7, "accelerator": "cpu", "data_options": {"images": "nowhere"}}, "nowhere"),
    ],
)
def test_a_start_that_fails_leaves_no_folder(table: Path, changes, message):
    settings = resolve_settings(f"table:{table}", flags=BUDGET | changes)
    with pytest.raises(InputError, match=message):
        train(settings, table.parent / "runs" / "run")
    assert not (table.parent / "runs" / "run").exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("accelerator", "cudda", "--accelerator must be one of"),
        ("log", "mlflow", "--log mlflow needs the package mlflow"),
        ("strategy", "fsdp", "--strategy fsdp: cached features leave little to train"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_is_measured_or_trained(
    name: str, value: str, message: str, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kmcl.training.tracking.find_spec", lambda package: None)
    monkeypatch.setattr(ThisMachine, "time_features", lambda *_: pytest.fail("measured"))
    monkeypatch.setattr("kmcl.studies.study.train_members", lambda *_: pytest.fail("trained"))
    output, given = table.parent / "out", {name: value}
    flags = [str(table), f"--{name}={value}", f"--output={output}"]
    calls: list[Callable[[], object]] = [
        lambda: kmcl.train(table, output=output, progress=False, **given),
        lambda: kmcl.compare(table, ["asl"], output=output, progress=False, **given),
        lambda: make_app()(["train", *flags], standalone_mode=False),
        lambda: make_app()(["compare", *flags], standalone_mode=False),
    ]
    for call in calls:
        with pytest.raises(InputError, match=message):
            call()
    assert not output.exists()


def test_an_error_of_another_library_leaves_no_folder(table: Path):
    class Broken(nn.Module):
        input_size = 16

        def forward(self, images):
            raise RuntimeError("impossible size")

    with pytest.raises((InputError, RuntimeError), match="impossible size"):
        kmcl.train(f"table:{table}", encoder=Broken(), output=table.parent / "run", epochs=1, progress=False)
    assert not (table.parent / "run").exists()


def test_an_unreadable_image_leaves_no_folder_but_the_files_of_the_user(table: Path):
    (table.parent / "3.png").write_bytes(b"no image")
    folder = table.parent / "run"
    folder.mkdir()
    (folder / "data.csv").write_text("mine")
    with pytest.raises(InputError, match=r"3\.png"):
        train(resolve_settings(f"table:{table}", flags=BUDGET), folder)
    assert [path.name for path in folder.iterdir()] == ["data.csv"]
    frame = pd.read_csv(table)
    frame["image"] = [str(table.parent / name) for name in frame["image"]]
    with pytest.raises(InputError, match=r"3\.png"):
        kmcl.train(frame, output=table.parent / "of a frame", progress=False, **BUDGET)
    assert not (table.parent / "of a frame").exists()


def test_a_run_is_found_again_from_any_folder(table: Path, monkeypatch):
    monkeypatch.chdir(table.parent)
    budget = {name: value for name, value in BUDGET.items() if name != "image_size"}
    train(resolve_settings("my.csv", flags=budget), Path("run"))
    (table.parent / "elsewhere").mkdir()
    monkeypatch.chdir(table.parent / "elsewhere")
    settings = RunFolder(Path("../run")).read_settings()
    assert settings.data.spec == f"table:{table}"
    assert settings.encoder.image_size == kmcl.load("../run").image_size
    (table.parent / "run" / "metrics.json").unlink()
    kmcl.resume("../run", progress=False)
    external = kmcl.evaluate("../run", data=table, progress=False)
    assert external.mean_average_precision == pytest.approx(kmcl.evaluate("../run").mean_average_precision)


def test_images_of_a_run_with_a_relative_path_are_found(table: Path, monkeypatch):
    """Also those of runs whose predictions have the path as it was given."""
    monkeypatch.chdir(table.parent)
    kmcl.train("my.csv", output="run", progress=False, **BUDGET)
    file = RunFolder(Path("run")).predictions_file("test")
    predictions = Predictions.load(file)
    assert predictions.names == tuple(str(table.parent / f"{number}.png") for number in range(16, 20))
    monkeypatch.chdir("/")
    run = table.parent / "run"
    for names in (predictions.names, tuple(f"{number}.png" for number in range(16, 20))):
        replace(predictions, names=names).save(RunFolder(run).predictions_file("test"))
        parts = RunParts(run, "run")
        for number, name in enumerate(names, start=16):
            expected = np.asarray(Image.open(table.parent / f"{number}.png"))
            np.testing.assert_array_equal(parts.load_image(name, 16), expected)
        assert parts.load_image("5.png", 16) is None
        assert parts.problems == []
    replace(predictions, names=("a", "b", "c", "d")).save(RunFolder(run).predictions_file("test"))
    moved = RunParts(run, "run")
    assert moved.images is None
    assert "none of those that were predicted, such as 'a'" in moved.problems[0]


def test_what_a_killed_start_left_unfinished_is_not_in_the_way(table: Path):
    run = table.parent / "run"
    run.mkdir()
    with replacing(run / "settings.yaml") as temporary:
        temporary.write_text("data:")
        left = temporary.name
    (run / "settings.yaml").rename(run / left)  # a killed process neither renames nor removes it
    train(resolve_settings(f"table:{table}", flags=BUDGET), run)
    assert (run / "metrics.json").is_file()


def test_a_full_disk_before_training_leaves_the_run_to_be_resumed(table: Path, monkeypatch):
    def refuse(*arguments: object, **named: object) -> None:
        raise WriteError(table.parent / "cache", OSError(errno.ENOSPC, "No space left on device"), 5)

    run = table.parent / "run"
    with monkeypatch.context() as full:
        full.setattr(RunData, "train_loader", refuse)
        with pytest.raises(WriteError):
            train(resolve_settings(f"table:{table}", flags=BUDGET), run)
    resume(run)
    assert (run / "metrics.json").is_file()


def test_a_full_disk_under_the_settings_leaves_nothing(table: Path):
    run = table.parent / "run"
    with pytest.raises(WriteError, match=r"plan\.yaml"), no_room():
        train(resolve_settings(f"table:{table}", flags=BUDGET), run)
    assert not run.exists()
