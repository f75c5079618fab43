"""Trainings over hosts: their commands, and what they left."""

from __future__ import annotations

import csv
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from hosts.network import Network, log_of, torchrun
from kmcl.evaluation.predictions import Predictions

SETTINGS = {
    "encoder": "test_convnext",  # normalises each image by itself
    "weights": "none",
    "image_size": 32,
    "augmentation": "none",
    "learning_rate": 2e-3,
    "batch_size": 20,
    "workers": 0,
    "kernel": "isotropic",
    "query_width": 0,
    "posthoc": "none",
    "accelerator": "cpu",
    "log": "csv",
}


def train_words(output: Path, epochs: int, data: str = "digits", **changes: object) -> list[str]:
    flags = SETTINGS | {"epochs": epochs, "output": output} | changes
    words = [part for name, value in flags.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    options = ["--option", "size=120"] if data == "digits" else []
    return ["train", data, *words, *options]


def start_on_hosts(
    network: Network,
    count: int,
    folder: Path,
    words: list[str],
    command: Callable[..., list[str]] = torchrun,
) -> list[subprocess.Popen[str]]:
    """One process on each host, with its output in `log_of`."""
    with ExitStack() as stack:
        logs = [stack.enter_context(log_of(folder, number).open("w")) for number in range(count)]
        return [
            network.start(number, command(number, count, *words), logs[number]) for number in range(count)
        ]


def wait_until_all_end(processes: list[subprocess.Popen[str]], folder: Path, seconds: float = 900) -> None:
    end = time.monotonic() + seconds
    for number, process in enumerate(processes):
        status = process.wait(max(1, end - time.monotonic()))
        assert status == 0, log_of(folder, number).read_text()


def wait_for(path: Path, processes: list[subprocess.Popen[str]], folder: Path) -> None:
    end = time.monotonic() + 600
    while not path.exists():
        for number, process in enumerate(processes):
            assert process.poll() is None, log_of(folder, number).read_text()
        assert time.monotonic() < end
        time.sleep(0.02)


def epochs_of(run: Path) -> list[dict[str, float]]:
    """The rows of epochs.csv; an epoch of several processes has no losses of val."""
    with (run / "epochs.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{k: float(v) for k, v in row.items() if k != "seconds" and v != ""} for row in rows]


def assert_same_numbers(run: Path, reference: Path, rel: float = 2e-3, atol: float = 2e-3) -> None:
    """Losses and val mAP of every epoch to `rel`, scores of test to `atol`."""
    for one, several in zip(epochs_of(reference), epochs_of(run), strict=True):
        assert {"train/contrastive", "val/map_model"} <= several.keys()
        several.pop("train/map")  # of a few images: a rank may change
        assert several == pytest.approx({name: one[name] for name in several}, rel=rel)
    expected, found = (Predictions.load(path / "predictions" / "test.npz") for path in (reference, run))
    np.testing.assert_allclose(found.scores, expected.scores, atol=atol)


def environment(folder: Path) -> dict[str, str]:
    """Of a process alone."""
    return os.environ | {"OMP_NUM_THREADS": "1", "KMCL_CACHE": str(folder)}
