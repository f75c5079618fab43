"""Whole runs on a real tracking server of MLflow, read back by its client."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mlflow_server import PROGRAM, running_mlflow

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no server of MLflow: KMCL_MLFLOW names its program"),
]
mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")

EPOCHS = 3
TINY = [
    *("--recipe", "paper", "--augmentation", "light"),
    *("--encoder", "test_convnext", "--weights", "none", "--image-size", "32", "--learning-rate", "2e-3"),
    *("--batch-size", "20", "--workers", "0", "--posthoc", "none", "--option", "size=120"),
    *("--log", "mlflow,csv", "--experiment", "photographs"),
]


def start_kmcl(url: str, *arguments: object) -> subprocess.Popen[str]:
    environment = os.environ | {"MLFLOW_TRACKING_URI": url, "MLFLOW_DISABLE_TELEMETRY": "true"}
    return subprocess.Popen(
        [sys.executable, "-m", "kmcl", *map(str, arguments)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_kmcl(url: str, *arguments: object) -> str:
    process = start_kmcl(url, *arguments)
    told, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, told
    return told


def wait_for_epochs(run: Path, number: int, process: subprocess.Popen[str]) -> None:
    while not (run / "epochs.csv").is_file() or len(epochs_of(run)) < number:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def epochs_of(run: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((run / "epochs.csv").read_text().splitlines()))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_mlflow(tmp_path_factory.mktemp("mlflow")) as (address, _):
        yield address


def tracked(url: str, name: str) -> tuple[Any, Any]:
    """A client, and the only run of that name."""
    client = mlflow.tracking.MlflowClient(url)
    experiment = client.get_experiment_by_name("photographs")
    (run,) = client.search_runs([experiment.experiment_id], f"attributes.run_name = '{name}'")
    return client, run


def losses(client: Any, run: Any) -> list[float]:
    return [metric.value for metric in client.get_metric_history(run.info.run_id, "train/loss")]


def test_a_run_can_be_read_back_from_the_server(url: str, tmp_path: Path):
    folder = tmp_path / "whole"
    run_kmcl(url, "train", "digits", "--output", folder, "--epochs", EPOCHS, *TINY)
    run_kmcl(url, "report", folder, "--output", tmp_path / "page", "--num-images", 0, "--num-masked", 0)
    client, run = tracked(url, "whole")
    assert run.info.status == "FINISHED"
    sent = run.data.params
    assert (sent["encoder"], sent["batch_size"], sent["epochs"]) == ("test_convnext", "20", str(EPOCHS))
    rows = epochs_of(folder)
    assert losses(client, run) == pytest.approx([float(row["train/loss"]) for row in rows], rel=1e-5)
    history = client.get_metric_history(run.info.run_id, "val/map_best")
    assert len(history) == len({metric.step for metric in history}) == EPOCHS
    metrics = json.loads((folder / "metrics.json").read_text())
    found = metrics["test"]["evaluation"]["mean_average_precision"]
    assert run.data.metrics["test/mean_average_precision"] == pytest.approx(found)

    files = {item.path for item in client.list_artifacts(run.info.run_id)}
    assert {"labels-test.csv", "metrics.json", "settings.yaml", "epochs.csv"} <= files
    got = Path(client.download_artifacts(run.info.run_id, "", str(tmp_path)))
    assert len((got / "labels-test.csv").read_text().splitlines()) == 1 + 10
    assert "<html" in (got / "report" / "report.html").read_text()[:200]
    for path in (folder / "model").iterdir():
        assert (got / "model" / path.name).read_bytes() == path.read_bytes()


def test_a_killed_run_goes_on_in_the_same_place(url: str, tmp_path: Path):
    folder = tmp_path / "killed"
    process = start_kmcl(url, "train", "digits", "--output", folder, "--epochs", 12, *TINY)
    wait_for_epochs(folder, 2, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run_kmcl(url, "train", "--resume", folder)
    client, run = tracked(url, "killed")
    assert run.info.status == "FINISHED"
    # An epoch that was sent and not yet in a checkpoint is sent again, with the same step and value.
    by_step = {
        metric.step: metric.value for metric in client.get_metric_history(run.info.run_id, "train/loss")
    }
    assert list(by_step.values()) == pytest.approx(
        [float(row["train/loss"]) for row in epochs_of(folder)], rel=1e-5
    )


def test_a_run_that_fails_is_shown_as_failed(url: str, tmp_path: Path):
    folder = tmp_path / "stopped"
    process = start_kmcl(url, "train", "digits", "--output", folder, "--epochs", 400, *TINY)
    wait_for_epochs(folder, 1, process)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=600)
    assert tracked(url, "stopped")[1].info.status == "FAILED"


def test_training_outlives_its_server(tmp_path: Path):
    server = tmp_path / "server"
    server.mkdir()
    folder = tmp_path / "alone"
    with running_mlflow(server) as (address, its_process):
        process = start_kmcl(address, "train", "digits", "--output", folder, "--epochs", 12, *TINY)
        wait_for_epochs(folder, 1, process)
        os.killpg(its_process.pid, signal.SIGKILL)
        told, _ = process.communicate(timeout=1200)
    assert process.returncode == 0, told
    assert "MLflow gets no more metrics of this run" in told
    assert "epochs.csv has them" in told
    assert len(epochs_of(folder)) == 12
    assert json.loads((folder / "metrics.json").read_text())["test"]


def test_a_server_that_is_not_there_ends_the_command_at_once(tmp_path: Path):
    process = start_kmcl("http://127.0.0.1:9", "train", "digits", "--output", tmp_path / "none", *TINY)
    told, _ = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "--log mlflow: " in told
    assert "MLFLOW_TRACKING_URI names the tracking server" in told
    assert not (tmp_path / "none").exists()
