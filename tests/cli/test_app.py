"""The program as people start it: help, mistakes, predictions."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from kmcl.cli.app import main, make_app
from kmcl.cli.settings_flags import NOT_FLAGS
from kmcl.errors import InputError
from kmcl.options import METHOD_OPTIONS
from kmcl.runs.recipes import left_to_the_run
from kmcl.runs.resolution import (
    BY_THE_RECIPE,
    PRESETS,
    flat_values,
    read_given,
    resolve_settings,
    setting_names,
    settings_from_values,
)

COMMANDS = [
    "train",
    "compare",
    "study kernels",
    "study terms",
    "study data-size",
    "study weights",
    "evaluate",
    "predict",
    "report",
    "explain",
    "export",
    "push",
    "import-released",
    "complexity",
    "data describe",
    "data check",
    "figure similarity",
]


def kmcl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kmcl", *arguments], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    from settings_runs import train

    settings = resolve_settings(
        "digits",
        flags={
            "encoder": "test_convnext",
            "weights": "none",
            "image_size": 32,
            "augmentation": "light",
            "epochs": 1,
            "kernel": "isotropic",
            "data_options": {"size": 80},
        },
    )
    folder = tmp_path_factory.mktemp("runs") / "run"
    train(settings, folder)
    return folder


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    folder = tmp_path / "photographs"
    folder.mkdir()
    for name in ("a.png", "b.jpg"):
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8)).save(
            folder / name
        )
    (folder / "broken.jpg").write_bytes(b"\xff\xd8 not a picture")
    (folder / "notes.txt").write_text("no picture either")
    return folder


def test_help_needs_no_torch():
    code = (
        "import sys; from kmcl.cli.app import make_app; make_app()(['--help'], standalone_mode=False);"
        "print(sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "typer" in loaded
    for heavy in ("torch", "timm", "pytorch_lightning", "pandas", "sklearn", "numpy", "pydantic"):
        assert f"'{heavy}'" not in loaded


@pytest.mark.parametrize("command", ["train", "compare", "study weights"])
def test_the_help_of_commands_with_settings_needs_no_torch(command: str):
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('torch', 'timm', 'pytorch_lightning'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from kmcl.cli.app import main\n"
        "main()"
    )
    arguments = [sys.executable, "-c", code, *command.split(), "--help"]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "--decoder-groups" in result.stdout


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("digits", "batch_size: 64"),
        ("digits --method q2l --decoder-layers 3 --encoder tresnet_m", "decoder_layers: 3"),
        ("digits --preset paper --weights none", "name: tresnet_m"),
        ("digits --recipe finetune --guarantee recall=0.9", "name: unfamiliarity"),
        ("digits --posthoc frozen_gp:stages=1,kernel_vote:max_images=100 --frozen-stages 2", "stages: 1"),
        ("features:vectors.npz", "name: frozen_gp"),
    ],
)
def test_showing_settings_needs_no_torch(given: str, shown: str):
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print(sorted({m.split('.')[0] for m in sys.modules})))\n"
        "from kmcl.cli.app import main\n"
        "main()"
    )
    arguments = [sys.executable, "-c", code, "train", *given.split(), "--show-settings"]
    printed = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
    assert shown in printed
    for heavy in ("torch", "timm", "pytorch_lightning", "pandas", "sklearn"):
        assert f"'{heavy}'" not in printed


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(make_app(), [*command.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_every_setting_has_a_flag():
    shown = {flag for flags in help_panels("train").values() for flag in flags}
    for name in setting_names():
        if name not in ("data", "data_options", *NOT_FLAGS):
            assert f"--{name.replace('_', '-')}" in shown, name


def test_common_settings_come_first_and_options_under_the_methods_that_have_them():
    panels = help_panels("train")
    assert list(panels)[:3] == ["Arguments", "Options", "Common settings"]
    assert panels["Common settings"][:5] == ["--recipe", "--budget", "--method", "--encoder", "--weights"]
    of_methods = {title: flags for title, flags in panels.items() if title.startswith("Method")}
    assert list(panels)[-len(of_methods) :] == list(of_methods)
    shown = [
        (method, flag)
        for title, flags in of_methods.items()
        for method in re.sub(r"^Methods? ", "", title).split(", ")
        for flag in flags
        if not flag.startswith("--no-")
    ]
    expected = [
        (name, f"--{option.replace('_', '-')}")
        for name, options in METHOD_OPTIONS.items()
        for option in options.option_names()
    ]
    assert sorted(shown) == sorted(expected)
    assert len(expected) > 30


def test_the_help_shows_the_defaults_that_result():
    wide = {"COLUMNS": "400", "TERMINAL_WIDTH": "400"}
    text = CliRunner().invoke(make_app(), ["train", "--help"], env=wide).output
    lines = re.findall(r"│ (--\S+).*?(?:\[default: \((.*?)\)\])?\s*│\n", text)
    shown = {flag[2:].replace("-", "_"): default for flag, default in lines}
    assert shown["negative_focus"] == "4.0; 1.0 with method aam"
    for preset in PRESETS:
        for method in METHOD_OPTIONS:
            given = read_given("digits", preset, flags={"method": method, "posthoc": "none"})
            left = set(left_to_the_run(given.values)) - {"recipe", "budget"}
            result = flat_values(settings_from_values(given.values, options=given.options))
            for name in result.keys() - {"data", "data_options", "method", "posthoc", *NOT_FLAGS}:
                expected = (
                    BY_THE_RECIPE if name in left else "" if result[name] is None else str(result[name])
                )
                assert meant(shown[name], method, preset) == expected, (name, method, preset)
    assert meant(shown["posthoc"], "kmcl", "paper") == "none"


def meant(shown: str, method: str, preset: str) -> str:
    """The default that `4.0; 1.0 with method aam` says for one method and preset."""
    general = ""
    for part in shown.split("; "):
        value, condition, of = part.partition(" with ")
        kind, _, names = of.partition(" ")
        if not condition:
            general = value
        elif {"method": method, "preset": preset}[kind] in names.split(", "):
            return value
    return general


def help_panels(command: str) -> dict[str, list[str]]:
    """The flags that each panel of the help explains, in their order."""
    wide = {"COLUMNS": "300", "TERMINAL_WIDTH": "300"}
    result = CliRunner().invoke(make_app(), [command, "--help"], env=wide)
    panels: dict[str, list[str]] = {}
    for line in result.output.splitlines():
        if title := re.match(r"╭─ (.+?) ─+╮", line):
            flags = panels.setdefault(title[1], [])
        elif explained := re.match(r"│ (--\S+)(?: +(--no-\S+))?", line):
            flags += filter(None, explained.groups())
    return panels


def test_settings_can_be_shown():
    result = CliRunner().invoke(
        make_app(), ["train", "digits", "--preset", "paper", "--epochs", "3", "--show-settings"]
    )
    assert result.exit_code == 0
    shown = yaml.safe_load(result.output)
    assert shown["optimisation"]["epochs"] == 3
    assert shown["encoder"]["name"] == "tresnet_m"
    assert (shown["method"]["name"], shown["method"]["head_init"]) == ("kmcl", "paper")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digitz"], "kmcl: unknown kind of dataset 'digitz'"),
        (["train"], "kmcl: settings: data must be given"),
        (["train", "table:/nowhere/labels.csv"], "/nowhere/labels.csv"),
        (["train", "digits", "--method", "asll"], "kmcl: method must be one of kmcl, asl, bce"),
        (
            ["train", "digits", "--method", "asl", "--kernel", "anisotropic"],
            "kmcl: settings: method asl has no option kernel; it is an option of kmcl\n",
        ),
        (
            ["compare", "digits", "--methods", "asl,bce", "--kernel", "gaussian"],
            "kmcl: kernel is an option of kmcl; none of these is compared: asl, bce\n",
        ),
        (
            ["study", "kernels", "digits", "--decoder-groups", "3"],
            "kmcl: decoder_groups is an option of mldecoder; none of these is compared: kmcl\n",
        ),
        (
            ["study", "terms", "digits", "--decoder-groups", "3"],
            "kmcl: decoder_groups is an option of mldecoder; none of these is compared: kmcl\n",
        ),
        (
            ["study", "weights", "digits", "--decoder-groups", "3"],
            "kmcl: decoder_groups is an option of mldecoder; none of these is compared: kmcl\n",
        ),
        (
            ["train", "digits", "--posthoc", "kernel_vot"],
            "kmcl: post-hoc part must be one of frozen_gp, kernel_vote, unfamiliarity; got 'kernel_vot'",
        ),
        (
            ["train", "digits", "--recipe", "finetune", "--posthoc", "frozen_gp"],
            "kmcl: posthoc frozen_gp needs frozen stages of the encoder, and there are none",
        ),
        (
            ["train", "digits", "--encoder", "tresnet_n"],
            "kmcl: timm knows no encoder 'tresnet_n'. Did you mean",
        ),
        (["train", "digits", "--epochs", "0"], "kmcl: settings: epochs: "),
        (["train", "--resume", "/nowhere"], "kmcl: /nowhere: is no run folder"),
        (["train", "digits", "--resume", "/nowhere"], "kmcl: --resume continues a run"),
        (["train", "digits", "--option", "sise=3"], "sise"),
        (["evaluate", "/nowhere"], "kmcl: /nowhere: is no run folder"),
        (["predict", "/nowhere", __file__], "kmcl: /nowhere: there is no such folder"),
        (["predict", "/nowhere", "/missing.jpg"], "kmcl: /missing.jpg: there is no such file"),
        (
            ["predict", "/nowhere", __file__, "--output", "scores.txt"],
            "--output scores.txt: the form follows the ending, one of .csv, .json, .jsonl, .parquet; got",
        ),
        (["predict", "/nowhere", __file__, "--csv", "--json"], "--json and --csv cannot be combined"),
        (
            ["predict", "/nowhere", __file__, "--csv", "--output", "a.json"],
            "--csv and --output a.json contradict",
        ),
        (["predict", "/nowhere", __file__, "--json", "--wide"], "--wide is a form of CSV and Parquet"),
        (["explain", "/nowhere", "/missing.jpg"], "kmcl: /missing.jpg: there is no such file"),
    ],
)
def test_a_mistake_is_one_message_and_status_2(arguments, message, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["kmcl", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("kmcl: ")
    assert error.count("\n") == 1


def test_ctrl_c_before_a_command_begins_is_no_traceback(monkeypatch, capsys):
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kmcl.cli.app.make_app", interrupted)
    monkeypatch.setattr("kmcl.cli.app.leave_at_once", sys.exit)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
    assert capsys.readouterr().err == ""


def test_predict_goes_on_past_an_unreadable_image(run: Path, photographs: Path):
    result = kmcl("predict", str(run), str(photographs), "--json", "--sigma")
    assert result.returncode == 1
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [Path(line["image"]).name for line in lines] == ["a.png", "b.jpg", "broken.jpg"]
    assert [line["error"] is None for line in lines] == [True, True, False]
    assert lines[2]["error"] in result.stderr
    label = lines[0]["labels"][0]
    assert set(label) == {"label", "probability", "low", "high", "threshold", "present", "score", "sigma"}
    assert label["present"] == (label["probability"] >= label["threshold"])
    assert label["low"] < label["probability"] < label["high"]
    assert label["sigma"] > 1
    assert "broken.jpg" in result.stderr
    assert "1 of 3 images could not be read" in result.stderr


def test_predict_writes_csv_and_a_table(run: Path, photographs: Path):
    pattern = str(photographs / "[ab].*")
    result = CliRunner().invoke(make_app(), ["predict", str(run), pattern, "--csv"])
    assert result.exit_code == 0
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 2 * 10
    assert {row["label"] for row in rows} >= {"zero", "nine"}
    assert "sigma" not in rows[0]
    for row in rows:
        numbers = {name: float(row[name]) for name in ("probability", "low", "high", "threshold")}
        assert int(row["present"]) == (numbers["probability"] >= numbers["threshold"])
        assert numbers["low"] < numbers["probability"] < numbers["high"]
    table = CliRunner().invoke(make_app(), ["predict", str(run), pattern])
    assert "a.png" in table.stdout
    assert table.exit_code == 0
    assert "σ" not in table.stdout
    assert "σ" in CliRunner().invoke(make_app(), ["predict", str(run), pattern, "--sigma"]).stdout


def test_the_form_of_a_file_follows_its_ending(run: Path, photographs: Path):
    def written(name: str, *flags: str) -> Path:
        arguments = ["predict", str(run), str(photographs / "[ab].*"), "--output", str(photographs / name)]
        result = CliRunner().invoke(make_app(), [*arguments, *flags])
        assert result.exit_code == 0, result.output
        assert result.stdout == ""
        assert not list(photographs.glob(".*partial*"))
        return photographs / name

    rows = list(csv.DictReader(written("scores.csv").open()))
    lines = [json.loads(line) for line in written("scores.jsonl").read_text().splitlines()]
    assert json.loads(written("scores.json", "--json").read_text()) == lines
    assert [(Path(line["image"]).name, len(line["labels"])) for line in lines] == [
        ("a.png", 10),
        ("b.jpg", 10),
    ]
    flat = [
        (line["image"], label["label"], label["probability"]) for line in lines for label in line["labels"]
    ]
    assert [(row["image"], row["label"]) for row in rows] == [(image, label) for image, label, _ in flat]
    assert [float(row["probability"]) for row in rows] == pytest.approx([p for *_, p in flat], rel=1e-5)
    wide = list(csv.DictReader(written("wide.csv", "--wide").open()))
    assert [
        (row["image"], label, float(row[label]))
        for row in wide
        for label in row
        if label not in ("image", "error")
    ] == [(image, label, pytest.approx(probability, rel=1e-5)) for image, label, probability in flat]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_predict_lists_the_files_of_a_folder_that_are_no_images(run: Path, photographs: Path):
    for suffix in ("jp2", "avif"):
        Image.new("RGB", (40, 50)).save(photographs / f"c.{suffix}")
    (photographs / ".hidden").write_text("")
    os.mkfifo(photographs / "pipe.jpg")
    (photographs / "scan.dcm").write_bytes(b"\0" * 128 + b"DICM")
    result = CliRunner().invoke(make_app(), ["predict", str(run), str(photographs), "--wide"])
    assert result.exit_code == 1
    assert [Path(row["image"]).name for row in csv.DictReader(io.StringIO(result.stdout))] == [
        *("a.png", "b.jpg", "broken.jpg", "c.avif", "c.jp2", "scan.dcm")
    ]
    left_out = f"{photographs / 'notes.txt'}, {photographs / 'pipe.jpg'}"
    assert f"2 files are no images and were left out: {left_out}\n" in result.stderr
    assert "scan.dcm" in result.stderr
    assert ".hidden" not in result.stderr


def test_evaluate_shows_one_run_and_the_difference_of_two(run: Path, tmp_path: Path):
    alone = CliRunner().invoke(make_app(), ["evaluate", str(run), "--json"])
    assert alone.exit_code == 0
    metrics = json.loads((run / "metrics.json").read_text())
    shown = json.loads(alone.stdout)["runs"][0]
    assert shown["mean_average_precision"] == metrics["test"]["evaluation"]["mean_average_precision"]
    assert shown["at_threshold"]["CF1"] == metrics["test"]["evaluation_own_thresholds"]["at_threshold"]["CF1"]
    unsupported = metrics["thresholds"]["unsupported"]
    assert shown["unsupported_thresholds"] == unsupported
    # Eighty images leave some labels with fewer than five positives on val.
    assert 0 < len(unsupported) < 10
    table = CliRunner().invoke(make_app(), ["evaluate", str(run), "--resamples", "100"]).stdout
    for label in metrics["thresholds"]["labels"]:
        (line,) = (line for line in table.splitlines() if line.startswith(f"│ {label} "))
        assert ("*" in line) == (label in unsupported)
    assert "* chosen on fewer than 5 positives (or negatives) of val" in table
    fixed = CliRunner().invoke(make_app(), ["evaluate", str(run), "--threshold", "0.4"]).stdout
    assert "*" not in fixed
    copy = shutil.copytree(run, tmp_path / "copy")
    both = CliRunner().invoke(make_app(), ["evaluate", str(run), str(copy), "--resamples", "100"])
    assert both.exit_code == 0
    assert "difference in mAP, B minus A: +0.00" in both.stdout
    for output in (both.stdout, CliRunner().invoke(make_app(), ["evaluate", str(run)]).stdout):
        tables = [line for line in output.splitlines() if line[:1] in "┏┡│└"]
        assert len(tables) > 10
        assert max(map(len, tables)) <= 80


def test_evaluate_measures_on_other_data(run: Path, tmp_path: Path):
    """The digits of the run as files: one label renamed, one left out."""
    from kmcl.data import open_dataset

    dataset = open_dataset("digits", size=80)
    split = dataset.splits["test"]
    names = {"zero": "nought"}
    kept = [label for label in dataset.labels if label != "one"]
    with (tmp_path / "other.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["image", "split", *(names.get(label, label) for label in kept)])
        for row in range(len(split)):
            Image.fromarray(split.images.load(row)).save(tmp_path / f"{row}.png")
            targets = [int(split.targets[row, dataset.labels.index(label)]) for label in kept]
            writer.writerow([f"{row}.png", "test", *targets])
    arguments = ["evaluate", str(run), "--data", f"table:{tmp_path / 'other.csv'}", "--json"]
    found = CliRunner().invoke(make_app(), arguments)
    assert found.exit_code == 0
    own = json.loads(CliRunner().invoke(make_app(), ["evaluate", str(run), "--json"]).stdout)["runs"][0]
    other = json.loads(found.stdout)["runs"][0]
    expected = {row["label"]: row for row in own["labels"] if row["label"] not in ("zero", "one")}
    assert [row["label"] for row in other["labels"]] == list(expected)
    for row in other["labels"]:
        assert row["average_precision"] == pytest.approx(expected[row["label"]]["average_precision"])
        assert row["threshold"] == expected[row["label"]]["threshold"]
    assert "the model does not know: nought" in found.stderr
    assert "the data do not have: zero, one" in found.stderr
    everything = json.loads(CliRunner().invoke(make_app(), [*arguments, "--split", "all"]).stdout)
    assert everything["runs"][0]["num_images"] == len(split)
    with pytest.raises(InputError, match="has no split 'train'; there are test, all"):
        CliRunner().invoke(make_app(), [*arguments, "--split", "train"], catch_exceptions=False)
