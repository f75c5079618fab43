"""The program as people start it: help, mistakes, predictions."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image
from typer.testing import CliRunner

from kmcl.cli.app import main, make_app
from kmcl.methods import METHODS
from kmcl.training.resolution import resolve_settings, setting_names

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
    from kmcl.training.train import train

    settings = resolve_settings(
        "digits",
        flags={
            "encoder": "test_convnext",
            "weights": "none",
            "image_size": 32,
            "augmentation": "light",
            "epochs": 1,
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
        "import sys; from kmcl.cli.app import make_app; make_app(['--help']);"
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
        "        if name.partition('.')[0] in ('torch', 'timm', 'pytorch_lightning', 'numpy'):\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "from kmcl.cli.app import main\n"
        "main()"
    )
    arguments = [sys.executable, "-c", code, *command.split(), "--help"]
    result = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "--decoder-groups" in result.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(make_app(), [*command.split(), "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_every_setting_has_a_flag():
    shown = {flag for flags in help_panels("train").values() for flag in flags}
    for name in setting_names():
        if name not in ("data", "data_options"):
            assert f"--{name.replace('_', '-')}" in shown, name


def test_common_settings_come_first_and_options_under_the_methods_that_have_them():
    panels = help_panels("train")
    assert list(panels)[:3] == ["Arguments", "Options", "Common settings"]
    assert panels["Common settings"][:5] == ["--method", "--encoder", "--weights", "--image-size", "--epochs"]
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
        for name, method in METHODS.items()
        for option in method.option_names
    ]
    assert sorted(shown) == sorted(expected)
    assert len(expected) > 30


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
            "kmcl: settings: method kmcl has no option decoder_groups; it is an option of mldecoder\n",
        ),
        (
            ["study", "weights", "digits", "--decoder-groups", "3"],
            "kmcl: decoder_groups is an option of mldecoder; none of these is compared: kmcl\n",
        ),
        (
            ["train", "digits", "--posthoc", "kernel_vot"],
            "kmcl: post-hoc part must be one of frozen_gp, kernel_vote; got 'kernel_vot'",
        ),
        (
            ["train", "digits", "--posthoc", "frozen_gp"],
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


def test_predict_goes_on_past_an_unreadable_image(run: Path, photographs: Path):
    result = kmcl("predict", str(run), str(photographs), "--json")
    assert result.returncode == 1
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [Path(line["image"]).name for line in lines] == ["a.png", "b.jpg"]
    label = lines[0]["labels"][0]
    assert set(label) == {"label", "score", "probability", "threshold", "present", "sigma"}
    assert label["present"] == (label["score"] >= label["threshold"])
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
    table = CliRunner().invoke(make_app(), ["predict", str(run), pattern])
    assert "a.png" in table.stdout
    assert table.exit_code == 0


def test_predict_writes_a_file_only_when_it_is_whole(run: Path, photographs: Path):
    output = photographs / "out.json"
    result = CliRunner().invoke(
        make_app(), ["predict", str(run), str(photographs / "a.png"), "--json", "--output", str(output)]
    )
    assert result.exit_code == 0
    assert len(output.read_text().splitlines()) == 1
    assert not list(photographs.glob(".*partial*"))


def test_evaluate_shows_one_run_and_the_difference_of_two(run: Path):
    alone = CliRunner().invoke(make_app(), ["evaluate", str(run), "--json"])
    assert alone.exit_code == 0
    metrics = json.loads((run / "metrics.json").read_text())
    shown = json.loads(alone.stdout)["runs"][0]
    assert shown["mean_average_precision"] == metrics["test"]["evaluation"]["mean_average_precision"]
    assert shown["at_threshold"]["CF1"] == metrics["test"]["evaluation_own_thresholds"]["at_threshold"]["CF1"]
    both = CliRunner().invoke(make_app(), ["evaluate", str(run), str(run), "--resamples", "100"])
    assert both.exit_code == 0
    assert "difference in mAP, first minus second: +0.00" in both.stdout
