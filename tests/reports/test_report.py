"""Whole reports: of two runs, of broken ones, from the command line."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import typer
import yaml
from PIL import Image
from typer.testing import CliRunner

from kmcl.cli.explain import explain
from kmcl.cli.figure import figure_app
from kmcl.cli.report import report
from kmcl.errors import InputError
from kmcl.reports import ReportSettings, write_report
from kmcl.reports.blocks import Section, Text
from kmcl.reports.report import SECTIONS, Contents, ReportPart
from kmcl.reports.run_parts import read_runs

QUICK = ReportSettings(saliency="none")


@pytest.fixture
def program() -> typer.Typer:
    app = typer.Typer()
    app.command()(report)
    app.command()(explain)
    app.add_typer(figure_app, name="figure")
    return app


class Images(HTMLParser):
    """Collects what every <img> has, and the anchors of sections."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.images: list[dict[str, str | None]] = []
        self.sections: list[str | None] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        if tag == "img":
            self.images.append(dict(attrs))
        if tag == "section":
            self.sections.append(dict(attrs)["id"])


def test_the_report_of_two_runs_has_every_part(report_of_two, kernel_run, linear_run):
    html = report_of_two.read_text()
    parsed = Images(html)
    assert parsed.sections == [
        "summary",
        "comparison",
        "training",
        "scores",
        "labels",
        "features",
        "saliency",
        "labels-that-lean-on-others",
        "uncertainty",
        "examples",
        "settings",
    ]
    assert len(parsed.images) > 60
    assert all(image["alt"] for image in parsed.images)
    assert "Missing:" not in html
    for run in (kernel_run, linear_run):
        metrics = json.loads((run / "metrics.json").read_text())["test"]
        assert f"{100 * metrics['evaluation']['mean_average_precision']:.2f}" in html
        assert f"{100 * metrics['evaluation_own_thresholds']['at_threshold']['CF1']:.2f}" in html
    assert html.count("Jaccard index of the calibrated probabilities") == 2
    assert html.count("between two labels&#x27; kernels") == 1  # the other run has none
    assert re.search(r"Rank correlation -?0\.\d+ over 45 pairs of labels, permutation p = ", html)


def test_a_section_that_is_added_to_the_list_is_in_the_report(
    kernel_run, linear_run, tmp_path, monkeypatch, quick_figures
):
    """With progress, as `kmcl report` shows it: CONTRIBUTING.md says how a section is added."""

    def words_section(of: Contents) -> Section:
        return Section("Words", [Text(f"{len(of.runs)} runs, {len(of.measured)} measured")])

    few = [part for part in SECTIONS if part.name in ("comparison", "training", "settings")]
    monkeypatch.setattr("kmcl.reports.report.SECTIONS", [*few, ReportPart("words", words_section)])
    steps: list[tuple[str, float]] = []
    runs = [kernel_run, linear_run]
    page = write_report(runs, tmp_path, QUICK, lambda name, done: steps.append((name, done)))
    assert Images(page.read_text()).sections == ["summary", "comparison", "training", "settings", "words"]
    assert "2 runs, 2 measured" in page.read_text()
    names = dict.fromkeys(name for name, _ in steps)
    assert list(names) == ["metrics", "comparison", "training", "settings", "words", "page"]
    assert steps[-1] == ("page", pytest.approx((4 + 6 + 4 + 1 + 1) / (4 + 6 + 4 + 1 + 1 + 14)))


def test_every_figure_has_its_three_files(report_of_two):
    folder = report_of_two.parent / "figures"
    names = {file.stem for file in folder.iterdir()}
    assert {
        "losses-kernels",
        "losses-normalised-kernels",
        "val-map",
        "learning-rate",
        "seconds",
        "average-precision",
        "thresholds",
        "precision-recall-linear",
        "reliability-kernels",
        "risk-coverage",
        "labels-per-image",
        "label-correlation",
        "label-similarity-kernels",
        "label-similarity-linear",
        "kernel-similarity-kernels",
        "label-agreement-kernels",
        "features-kernels",
        "features-linear",
        "saliency",
        "sigma-kernels",
        "corruption-kernels",
        "corruption-linear",
        "map-difference",
        "label-difference",
    } <= names
    for name in names:
        assert {file.suffix for file in folder.glob(f"{name}.*")} == {".svg", ".png", ".csv"}
        assert Image.open(folder / f"{name}.png").convert("L").getextrema()[0] < 200, name


def test_the_numbers_of_a_figure_are_those_of_the_run(report_of_two, kernel_run):
    with (report_of_two.parent / "figures" / "average-precision.csv").open() as file:
        shown = {row["label"]: float(row["kernels"]) for row in csv.DictReader(file)}
    stated = json.loads((kernel_run / "metrics.json").read_text())["test"]["evaluation"]["labels"]
    assert shown == pytest.approx(
        {label["label"]: 100 * (label["average_precision"] or np.nan) for label in stated}, nan_ok=True
    )
    with (report_of_two.parent / "figures" / "losses-kernels.csv").open() as file:
        totals = [float(row["total"]) for row in csv.DictReader(file)]
    with (kernel_run / "epochs.csv").open() as file:
        assert totals == pytest.approx([float(row["train/loss"]) for row in csv.DictReader(file)])


def break_epochs(run: Path) -> None:
    (run / "epochs.csv").write_text("epoch,train/loss\n1,much\n")


def break_predictions(run: Path) -> None:
    (run / "predictions" / "test.npz").write_bytes(b"PK no archive")


def break_metrics(run: Path) -> None:
    (run / "metrics.json").write_text('{"test": [1')


def move_images(run: Path) -> None:
    settings = yaml.safe_load((run / "settings.yaml").read_text())
    settings["data"] |= {"spec": "table:/gone/labels.csv", "options": {}}
    (run / "settings.yaml").write_text(yaml.safe_dump(settings))


BREAKAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "epochs": (break_epochs, "line 2: train/loss is not a number: 'much'"),
    "no epochs": (lambda run: (run / "epochs.csv").unlink(), "epochs.csv: there is no such file"),
    "test predictions": (break_predictions, "test.npz: cannot be read as predictions"),
    "all predictions": (lambda run: shutil.rmtree(run / "predictions"), "no readable predictions"),
    "metrics": (break_metrics, "metrics.json: cannot be read"),
    "model": (lambda run: shutil.rmtree(run / "model"), "is no model"),
    "weights": (lambda run: (run / "model" / "model.safetensors").write_bytes(b"x"), "is no file of weights"),
    "settings": (
        lambda run: [file.unlink() for file in (run / "settings.yaml", run / "plan.yaml") if file.is_file()],
        "it has no settings.yaml",
    ),
    "images": (move_images, "/gone/labels.csv"),
}


@pytest.mark.parametrize("part", BREAKAGES)
def test_a_broken_part_is_named_and_the_rest_reported(part, breakable_run, tmp_path, quick_figures):
    breakage, message = BREAKAGES[part]
    breakage(breakable_run)
    html = write_report([breakable_run], tmp_path / "out", QUICK).read_text()
    assert "Missing:" in html
    assert message in html.replace("&#x27;", "'")
    assert '<section id="training">' in html
    if part not in ("epochs", "no epochs"):
        assert 'id="figure-losses"' in html
    if part not in ("all predictions",):
        assert 'id="figure-average-precision"' in html


def test_what_is_no_run_is_refused(tmp_path, kernel_run):
    for path, message in ((tmp_path, "is no run folder"), (tmp_path / "none", "there is no such folder")):
        with pytest.raises(InputError, match=message):
            write_report([path], tmp_path / "out")
    with pytest.raises(InputError, match="is given twice"):
        write_report([kernel_run, kernel_run], tmp_path / "out")
    with pytest.raises(InputError, match="needs two runs"):
        write_report([kernel_run], tmp_path / "out", ReportSettings(saliency="disagreement"))
    with pytest.raises(InputError, match="saliency must be one of random, disagreement, none"):
        ReportSettings(saliency="all")
    with pytest.raises(InputError, match="num_masked must be at least 0; got -1"):
        ReportSettings(num_masked=-1)


def test_runs_of_one_name_are_told_apart(tmp_path):
    for parent in ("a", "b"):
        (tmp_path / parent / "run" / "model").mkdir(parents=True)
    assert [run.name for run in read_runs([tmp_path / "a" / "run", tmp_path / "b" / "run"])] == [
        "a/run",
        "b/run",
    ]


def test_runs_of_the_same_data_open_it_once(kernel_run, linear_run, breakable_run):
    settings = breakable_run / "settings.yaml"
    settings.write_text(settings.read_text().replace("size: 120", "size: 60"))
    first, second, other = read_runs([kernel_run, linear_run, breakable_run])
    assert first.dataset is second.dataset
    assert [len(run.dataset.splits["train"]) for run in (first, other)] == [120, 60]


def test_explain_from_the_command_line(program, kernel_run, linear_run, tmp_path):
    picture = tmp_path / "photograph.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)).save(picture)
    output = tmp_path / "out"
    arguments = ["explain", str(kernel_run), str(picture), "--other", str(linear_run), "--label", "three"]
    result = CliRunner().invoke(program, [*arguments, "--output", str(output)])
    assert result.exit_code == 0, result.output
    assert "explanation.html" in result.output
    images = Images((output / "explanation.html").read_text()).images
    assert len(images) == 4  # for each run the image and one label
    assert "Where linear sees three in" in images[3]["alt"]
    assert {sizes(image) for image in images} == {(672, 448)}
    grid = Image.open(output / "figures" / "saliency.png")
    assert grid.width > 2 * 448
    assert grid.height > 2 * 448 * 40 / 60
    with (output / "figures" / "saliency.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["label"], row["has it"]) for row in rows] == [
        ("kernels", "three", "unknown"),
        ("linear", "three", "unknown"),
    ]


def sizes(image: dict[str, str]) -> tuple[int, int]:
    content = base64.b64decode(image["src"].partition("base64,")[2])
    return Image.open(io.BytesIO(content)).size


@pytest.mark.parametrize(("flags", "expected"), [([], (448, 672)), (["--full-size"], (1000, 1500))])
def test_large_images_are_reduced_unless_their_resolution_is_asked_for(
    program, kernel_run, tmp_path, flags, expected
):
    Image.new("RGB", (1000, 1500), (200, 30, 40)).save(tmp_path / "tall.png")
    arguments = ["explain", str(kernel_run), str(tmp_path / "tall.png"), "--label", "three", *flags]
    result = CliRunner().invoke(program, [*arguments, "--output", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    images = Images((tmp_path / "out" / "explanation.html").read_text()).images
    assert [sizes(image) for image in images] == [expected] * 2


def test_report_from_the_command_line(program, breakable_run, quick_figures):
    result = CliRunner().invoke(program, ["report", str(breakable_run), "--saliency", "none"])
    assert result.exit_code == 0, result.output
    assert str(breakable_run / "report" / "report.html") in result.output.replace("\n", "")
    assert 'id="figure-sigma"' in (breakable_run / "report" / "report.html").read_text()


def test_the_similarity_figure_from_the_command_line(program, tmp_path):
    result = CliRunner().invoke(program, ["figure", "similarity", "--output", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "1.0000" in result.output
    assert {file.name for file in tmp_path.iterdir()} == {
        "similarity.svg",
        "similarity.png",
        "similarity.csv",
    }


def test_the_summary_shows_values_and_not_settings_objects(report_of_two: Path):
    html = report_of_two.read_text(encoding="utf-8")
    summary = html[html.index('id="summary"') : html.index('id="comparison"')]
    rows = re.findall(r"<tr>(.*?)</tr>", summary, re.DOTALL)
    cells = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in rows]
    found = {row[0]: row[1:] for row in cells if row}
    assert found["data"] == ["digits", "digits"]
    assert found["method"] == ["kmcl", "asl"]
    assert found["encoder"] == ["test_convnext", "test_convnext"]
    assert found["posthoc"] == ["kernel_vote,unfamiliarity", "none"]
    assert "name=&#x27;" not in html
    assert "name='" not in html
