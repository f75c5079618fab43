"""Whole studies on tiny data: what comes out, what a kill costs, what two processes do to each other."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from frozen_numbers import assert_as_frozen, write_frozen
from kmcl.cli.app import make_app
from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import compare_mean_map
from kmcl.evaluation.predictions import Predictions
from kmcl.studies.plan import StudyPlan, make_plan
from kmcl.studies.results import StudyResult
from kmcl.studies.running import PRELOADED, threads_per_process
from kmcl.studies.study import run_study
from kmcl.studies.variants import parse_variants
from prepared_program import Program
from settings_runs import train
from studies_settings import TINY

TINY_FLAGS = [
    *("--encoder", "test_convnext", "--weights", "none", "--query-width", "128", "--image-size", "32"),
    *("--augmentation", "light", "--learning-rate", "2e-3", "--batch-size", "20", "--epochs", "1"),
    *("--workers", "0", "-o", "size=120"),
]
FROZEN = Path(__file__).with_name("frozen_table.json")


def tiny_plan(methods: str, seeds: tuple[int, ...], **changes: object) -> StudyPlan:
    values = {"data": "digits", **TINY, **changes}
    return make_plan("compare", values, parse_variants([methods]), seeds)


def stamps(folder: Path) -> dict[str, int]:
    """When each file of the members was last written."""
    files = [path for path in (folder / "members").rglob("*") if path.is_file()]
    return {str(path): path.stat().st_mtime_ns for path in files}


class Finished:
    plan = tiny_plan("asl,kmcl,bad=mlgcn:word_vectors=/nowhere/vectors.txt", (0, 1))
    result: StudyResult
    folder: Path
    said: str


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    finished = Finished()
    finished.folder = tmp_path_factory.mktemp("studies") / "study"
    console = Console(file=io.StringIO(), width=200)
    finished.result = run_study(finished.plan, finished.folder, jobs=2, console=console)
    finished.said = console.file.getvalue()  # type: ignore[attr-defined]
    return finished


def test_every_member_is_the_run_it_would_be_alone(study: Finished, tmp_path: Path):
    member = study.plan.members(study.folder)[1]
    threads = torch.get_num_threads()
    torch.set_num_threads(threads_per_process(2))  # as the members had: other numbers round otherwise
    try:
        train(member.settings, tmp_path / "alone")
    finally:
        torch.set_num_threads(threads)
    alone, among = (
        Predictions.load(path / "predictions" / "test.npz") for path in (tmp_path / "alone", member.run.path)
    )
    np.testing.assert_allclose(among.scores, alone.scores, atol=1e-5)


def test_means_spreads_and_differences_are_those_of_the_members(study: Finished):
    maps = {
        name: [
            json.loads((study.folder / "members" / f"{name}-seed{seed}" / "metrics.json").read_text())[
                "test"
            ]["evaluation"]["mean_average_precision"]
            for seed in (0, 1)
        ]
        for name in ("asl", "kmcl")
    }
    found = {variant.name: variant for variant in study.result.variants}
    assert set(found) == {"asl", "kmcl"}
    for name, values in maps.items():
        assert found[name].metrics["mAP"].mean == pytest.approx(np.mean(values))
        assert found[name].metrics["mAP"].deviation == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    sides = [
        [
            Predictions.load(study.folder / "members" / f"{name}-seed{seed}" / "predictions" / "test.npz")
            for seed in (0, 1)
        ]
        for name in ("kmcl", "asl")
    ]
    expected = compare_mean_map(sides[0], sides[1], np.random.default_rng(0), 1000)
    assert found["kmcl"].difference == expected
    assert found["kmcl"].seeds_ahead == sum(np.array(maps["kmcl"]) > np.array(maps["asl"]))
    assert found["asl"].difference is None
    assert found["kmcl"].parameters > found["asl"].parameters > 100_000
    assert 2**27 < found["asl"].peak_memory_bytes < 2**33
    assert found["asl"].training_seconds.mean > 0


def test_a_member_that_fails_is_told_and_stops_no_other(study: Finished):
    assert set(study.result.failures) == {"bad-seed0", "bad-seed1"}
    assert "/nowhere/vectors.txt: cannot be read" in study.result.failures["bad-seed0"]
    assert study.result.num_missing == 2
    assert "bad, seed 0: failed: /nowhere/vectors.txt: cannot be read" in study.said
    assert "Traceback" in (study.folder / "logs" / "bad-seed0.txt").read_text()
    assert "asl, seed 1: finished" in study.said
    assert "4 of 6 members" in study.said


def test_the_tables_hold_the_figures_and_name_the_description(study: Finished):
    text = (study.folder / "table.md").read_text()
    assert text.startswith("    kmcl compare --config study.yaml --output NEW\n")
    kmcl = study.result.variant("kmcl")
    assert kmcl is not None
    assert kmcl.difference is not None
    row = next(line for line in text.splitlines() if line.startswith("| kmcl |"))
    assert f"| {100 * kmcl.metrics['mAP'].mean:.2f} ± {100 * kmcl.metrics['mAP'].deviation:.2f} |" in row
    assert f"| {100 * kmcl.difference.difference.estimate:+.2f} (" in row
    assert "2 trainings are missing" in text
    assert {line.count("|") for line in text.splitlines() if line.startswith("| kmcl |")} == {15}
    with (study.folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["variant"], row["seed"]) for row in rows] == [
        ("asl", "0"),
        ("asl", "1"),
        ("kmcl", "0"),
        ("kmcl", "1"),
    ]
    assert [float(row["mAP"]) for row in rows[2:]] == pytest.approx(list(kmcl.metrics["mAP"].values))
    saved = json.loads((study.folder / "results.json").read_text())
    assert saved["description"] == "study.yaml"
    assert saved["variants"][1]["metrics"]["mAP"]["mean"] == kmcl.metrics["mAP"].mean


def numbers_of(folder: Path) -> dict[str, dict[str, float]]:
    """`table.csv` by variant and seed, without the seconds."""
    with (folder / "table.csv").open() as file:
        rows = list(csv.DictReader(file))
    words = ("variant", "method", "seed", "split", "training seconds")
    return {
        f"{row['variant']}, seed {row['seed']}": {
            name: float(value) for name, value in row.items() if name not in words and value
        }
        for row in rows
    }


def test_the_table_has_the_numbers_it_had(study: Finished):
    """To write them anew: `PYTHONPATH=tests python tests/studies/test_running.py`."""
    found = numbers_of(study.folder)
    for name in ("asl, seed 0", "kmcl, seed 0"):
        assert_as_frozen(found[name], FROZEN, name)


def test_the_same_study_again_touches_no_finished_member(study: Finished):
    before = stamps(study.folder)
    again = run_study(tiny_plan("kmcl,asl", (1,)), study.folder)
    assert stamps(study.folder) == before
    assert again.failures == {}
    assert again.num_missing == 0
    assert [variant.seeds for variant in again.variants] == [(0, 1), (0, 1)]
    assert again.reference == "kmcl"
    with pytest.raises(InputError, match="was started with epochs 1, now it is 2"):
        run_study(tiny_plan("asl,kmcl", (0, 1), epochs=2), study.folder)


def test_the_command_shows_the_table_and_draws_the_figure(study: Finished):
    arguments = ["compare", "digits", "--methods", "asl,kmcl", "--seeds", "0,1", *TINY_FLAGS]
    shown = CliRunner().invoke(make_app(), [*arguments, "--output", str(study.folder)])
    assert shown.exit_code == 0, shown.exception
    assert "4 of 4 members are finished already" in shown.output
    assert "val mAP" in shown.output
    assert max(map(len, shown.output.splitlines()[1:-1])) <= 80  # between the lines that name the folder
    for ending in ("png", "svg", "csv"):
        assert (study.folder / f"comparison.{ending}").stat().st_size > 100
    refused = CliRunner().invoke(make_app(), [*arguments, "--epochs", "2", "--output", str(study.folder)])
    assert "was started with epochs 1, now it is 2" in str(refused.exception)


def test_what_no_member_could_do_is_refused_before_any_begins(tmp_path: Path):
    with pytest.raises(InputError, match="method must be one of"):
        run_study(tiny_plan("asl,kmlc", (0,)), tmp_path / "study")
    with pytest.raises(InputError, match="unknown option 'sise'"):
        run_study(tiny_plan("asl", (0,), data_options={"sise": 1}), tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_two_processes_share_the_members_and_one_takes_over_from_the_other_killed(tmp_path: Path):
    """kill -9 in the middle of the second member, while another process runs the same study."""
    folder = tmp_path / "study"
    methods = "asl,long=kmcl:epochs=9,bce:epochs=4,focal"
    plan = tiny_plan(methods, (0,))
    arguments = ["compare", "digits", "--methods", methods, "--seeds", "0", *TINY_FLAGS]
    killed = Program(tmp_path / "errors.txt", *arguments, "--output", str(folder))
    members = {member.variant: member for member in plan.members(folder)}
    wait_for(lambda: members["long"].run.checkpoint.is_file(), killed)
    assert members["asl"].is_finished
    untouched = {name: stamp for name, stamp in stamps(folder).items() if "asl-seed0" in name}
    results: list[StudyResult] = []
    console = Console(file=io.StringIO(), width=200)
    other = threading.Thread(target=lambda: results.append(run_study(plan, folder, console=console)))
    other.start()
    wait_for(lambda: members["bce epochs=4"].log_file.is_file(), killed)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not members["long"].run.metrics_file.exists()
    other.join(timeout=240)
    assert not other.is_alive()
    assert len(results[0].variants) == 4
    assert results[0].num_missing == 0
    assert "long, seed 0: starts, resumes after epoch" in console.file.getvalue()  # type: ignore[attr-defined]
    assert stamps(folder).items() >= untouched.items()
    for member in members.values():
        first_epochs = member.log_file.read_text().count("epoch   1/")
        assert first_epochs == 1, member.name
    with members["long"].run.epochs_file.open() as file:
        assert [row["epoch"] for row in csv.DictReader(file)] == [str(epoch) for epoch in range(1, 10)]


def wait_for(condition, process: Program, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.is_running, process.errors
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_imported_once_for_all_members_is_there():
    assert [import_module(name).__name__ for name in PRELOADED] == ["kmcl.studies.member"]


def test_processes_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [threads_per_process(count) for count in (1, 2, 3, 20)] == [8, 4, 2, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads_per_process(2) == 1
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    assert threads_per_process(2) == 4


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        run_study(tiny_plan("asl,kmcl", (0,)), Path(made), jobs=2)
        write_frozen(FROZEN, numbers_of(Path(made)), keep_others="--add" in sys.argv)
