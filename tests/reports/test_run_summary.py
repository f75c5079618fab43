"""What is printed at the end of a run and of a study fits a terminal of 80 columns."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.reports import ReportSettings, write_report
from kmcl.reports.run_summary import print_run_summary
from kmcl.runs.folder import RunFolder


def printed(folder: Path, metrics: dict) -> str:
    console = Console(file=io.StringIO(), width=80)
    print_run_summary(console, folder, metrics)
    return console.file.getvalue()


def test_the_summary_has_map_labels_decisions_and_next_commands(kernel_run: Path):
    metrics = RunFolder(kernel_run).read_metrics()
    text = printed(Path("runs/my run"), metrics)
    assert max(map(len, text.splitlines())) <= 80
    test = metrics["test"]
    interval = [f"{100 * test['map_interval'][name]:.1f}" for name in ("estimate", "low", "high")]
    assert f"mAP {interval[0]} % (95 % interval {interval[1]} to {interval[2]})" in text
    assert f"val mAP {100 * metrics['val']['evaluation']['mean_average_precision']:.1f} %" in text
    ranked = sorted(
        (row for row in test["evaluation"]["labels"] if row["average_precision"] is not None),
        key=lambda row: -row["average_precision"],
    )
    best = re.search(r"best labels.*\n +(\S+) +([\d.]+)", text)
    assert best is not None
    assert best.groups() == (ranked[0]["label"], f"{100 * ranked[0]['average_precision']:.1f}")
    at = test["evaluation_own_thresholds"]["at_threshold"]
    numbers = r" +".join(f"{100 * at[name]:.1f}" for name in ("CP", "CR", "CF1"))
    assert re.search(rf"\(CP, CR, CF1\) +{numbers}", text)
    for command in ("report", "predict", "serve", "evaluate"):
        assert f"kmcl {command} 'runs/my run'" in text


def test_a_run_without_val_and_test(kernel_run: Path):
    metrics = RunFolder(kernel_run).read_metrics() | {"val": None, "test": None}
    text = printed(kernel_run, metrics)
    assert "neither a test nor a val split" in text
    assert "kmcl report" in text


def test_evaluate_and_report_give_the_same_interval_and_p_value(kernel_run, linear_run, report_of_two):
    command = ["evaluate", str(kernel_run), str(linear_run), "--json"]
    found = json.loads(CliRunner().invoke(make_app(), command).stdout)["difference"]
    difference = found["difference"]
    html = report_of_two.read_text()
    low, high = (f"{100 * difference[name]:+.2f}" for name in ("low", "high"))
    assert f"{100 * difference['estimate']:+.2f}" in html
    assert f"{low} to {high}" in html
    assert f">{found['p_value']:.3g}<" in html


def test_a_report_says_what_is_sampled_and_how_far_it_is(kernel_run: Path, tmp_path: Path):
    told: list[tuple[str, float]] = []
    settings = ReportSettings(saliency="none")
    page = write_report([kernel_run], tmp_path, settings, lambda section, done: told.append((section, done)))
    shares = [done for _, done in told]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1] < 1) == (0, True)
    assert [name for name, _ in dict.fromkeys((name, 0) for name, _ in told)][-1] == "page"
    within = [done for name, done in told if name == "uncertainty"]
    assert len(within) > 10
    num_images = RunFolder(kernel_run).read_metrics()["test"]["evaluation"]["num_images"]
    assert f"Means over 16 of the {num_images} images of test, drawn at random" in page.read_text()


def test_probabilities_and_thresholds_of_an_explanation_are_those_of_predict(kernel_run: Path, tmp_path):
    import numpy as np
    from PIL import Image

    import kmcl
    from kmcl.reports import write_explanation

    pixels = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (prediction,) = kmcl.load(kernel_run).predict(tmp_path / "a.png")
    label = prediction.labels[3]
    page = write_explanation([kernel_run], [tmp_path / "a.png"], tmp_path / "page", [label.label])
    row = f"{label.threshold:.6f}</td><td>{'yes' if label.present else 'no'}</td>"
    html = re.sub(r"<td[^>]*>", "<td>", page.read_text())
    assert row in html
    shown = re.search(rf"<td>([\d.]+)</td><td>{label.threshold:.6f}</td>", html)
    assert shown is not None
    assert float(shown[1]) == pytest.approx(label.probability, abs=2e-6)
