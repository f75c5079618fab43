"""`torchrun` over several hosts: the numbers of one process, and one message when a host is lost."""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from hosts.network import Network, log_of, missing_rights, torchrun
from kmcl.evaluation.predictions import Predictions

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif((reason := missing_rights()) is not None, reason=reason or ""),
]

SETTINGS = {
    "encoder": "test_convnext",  # normalises each image by itself
    "weights": "none",
    "image_size": 32,
    "augmentation": "none",
    "learning_rate": 2e-3,
    "batch_size": 20,
    "workers": 0,
    "query_width": 0,
    "posthoc": "none",
    "accelerator": "cpu",
    "log": "csv",
}


def arguments(output: Path, epochs: int, nodes: int) -> list[str]:
    flags = SETTINGS | {"epochs": epochs, "devices": 1, "nodes": nodes, "output": output}
    words = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    return ["train", "digits", *words, "--option", "size=120"]


def train_on_hosts(
    network: Network, count: int, folder: Path, words: list[str]
) -> list[subprocess.Popen[str]]:
    with ExitStack() as stack:
        logs = [stack.enter_context(log_of(folder, number).open("w")) for number in range(count)]
        return [
            network.start(number, torchrun(number, count, *words), logs[number]) for number in range(count)
        ]


def epochs_of(run: Path) -> list[dict[str, float]]:
    with (run / "epochs.csv").open() as file:
        return [{k: float(v) for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("one") / "run"
    subprocess.run([sys.executable, "-m", "kmcl", *arguments(run, 2, 1)], check=True, capture_output=True)
    return run


@pytest.mark.parametrize("count", [2, 4])
def test_hosts_train_like_one_process(one_process: Path, tmp_path: Path, count: int):
    """Losses and mAP of every epoch to 0.2 %, scores of test to 0.002."""
    run = tmp_path / "run"
    with Network(count) as network:
        processes = train_on_hosts(network, count, tmp_path, arguments(run, 2, count))
        for number, process in enumerate(processes):
            assert process.wait(600) == 0, log_of(tmp_path, number).read_text()
    for one, several in zip(epochs_of(one_process), epochs_of(run), strict=True):
        assert several.pop("train/map") == pytest.approx(one["train/map"], rel=2e-2)  # a rank may change
        assert several == pytest.approx({name: one[name] for name in several}, rel=2e-3)
        assert {"train/contrastive", "val/map"} <= several.keys()
    expected, found = (Predictions.load(path / "predictions" / "test.npz") for path in (one_process, run))
    np.testing.assert_allclose(found.scores, expected.scores, atol=2e-3)


def test_a_killed_host_is_one_message_on_the_other(tmp_path: Path):
    """Within a minute; the run can be resumed on one host."""
    run = tmp_path / "run"
    with Network(2) as network:
        processes = train_on_hosts(network, 2, tmp_path, arguments(run, 2000, 2))
        wait_for(run / "checkpoints" / "last.ckpt", processes, tmp_path)
        killed = time.monotonic()
        network.kill(1)
        assert processes[0].wait(60) != 0
        assert time.monotonic() - killed < 60
    said = log_of(tmp_path, 0).read_text()
    assert said.count("kmcl: another process of this training was lost") == 1
    assert f"resume with: kmcl train --resume {run}" in said
    # torchrun adds its own report, with the status; kmcl itself adds no traceback.
    assert "Traceback" not in said.partition("kmcl: another process")[0]


def wait_for(path: Path, processes: list[subprocess.Popen[str]], folder: Path) -> None:
    end = time.monotonic() + 300
    while not path.exists():
        for number, process in enumerate(processes):
            assert process.poll() is None, log_of(folder, number).read_text()
        assert time.monotonic() < end
        time.sleep(0.05)
