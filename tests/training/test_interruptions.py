"""What ends a run early ends it with one message, the right status and a run that can be resumed."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.storage.atomic import WriteError
from kmcl.training.accelerators import check_accelerator
from kmcl.training.resolution import resolve_settings
from kmcl.training.train import resume, train
from tiny_runs import TINY_CACHED

FLAGS = [
    part
    for name, value in (TINY_CACHED | {"epochs": 500, "frozen_stages": 0, "cached_views": 0}).items()
    if name != "data_options"
    for part in (f"--{name.replace('_', '-')}", str(value))
]


def start(run: Path, *flags: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kmcl", "train", "digits", "--option", "size=120", *FLAGS, *flags]
    return subprocess.Popen(
        [*command, "--output", str(run)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def wait_for_epoch(run: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 600  # on a machine that is busy with something else
    while not (run / "checkpoints" / "last.ckpt").is_file():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children_of(process: subprocess.Popen[str]) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def test_sigterm_ends_it_as_ctrl_c_does(tmp_path: Path):
    run = tmp_path / "run"
    process = start(run)
    wait_for_epoch(run, process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 143, errors
    assert errors == (
        f"The last finished epoch is in {run}/checkpoints/last.ckpt; resume with: kmcl train --resume {run}\n"
        f"The best model so far can be used: kmcl predict {run} IMAGES\n"
    )


def test_a_killed_worker_is_a_message(tmp_path: Path):
    run = tmp_path / "run"
    process = start(run, "--workers", "1")
    wait_for_epoch(run, process)
    for pid in children_of(process):
        os.kill(pid, signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    first, second = errors.splitlines()[:2]
    assert first.startswith("kmcl: a worker process that loads images was lost (DataLoader worker (pid")
    assert "use fewer workers (--workers, num_workers) or none (0)" in first
    assert second.endswith(f"resume with: kmcl train --resume {run}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cuda", "--accelerator cuda: torch finds no such device on this machine; use --accelerator cpu"),
        ("gpu", "--accelerator gpu: torch finds no such device"),
        ("cdua", r"--accelerator must be one of .*; got 'cdua' \(did you mean 'cuda'\?\)"),
    ],
)
def test_an_accelerator_that_is_not_there(tmp_path: Path, name: str, message: str):
    import torch

    if torch.cuda.is_available() or torch.backends.mps.is_available():
        pytest.skip("this machine has one")
    settings = resolve_settings("digits", flags=TINY_CACHED | {"accelerator": name})
    with pytest.raises(InputError, match=message):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    check_accelerator("auto", None)
    check_accelerator("cpu", 2)


def test_a_full_disk_wherever_it_comes_is_a_message_and_the_run_resumes(tmp_path: Path):
    """A real refusal: files of more than so many bytes cannot be written; less room at every attempt fails
    at another file of the run."""
    settings = resolve_settings("digits", flags=TINY_CACHED)
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(settings, whole)
    files = {"model.safetensors", "last.ckpt", "test.npz", "val.npz", "epochs.csv"}
    sizes = {path.name: path.stat().st_size for path in whole.rglob("*") if path.name in files}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    refused = []
    try:
        for name in ("model.safetensors", "last.ckpt"):
            resource.setrlimit(resource.RLIMIT_FSIZE, (sizes[name] - 1, limits[1]))
            with pytest.raises(
                WriteError, match=r"cannot be written: File too large \([\d,]+ bytes needed, "
            ):
                train(settings, run) if not run.exists() else resume(run)
            refused.append(name)
            assert not list(run.rglob("*.partial*"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)
    assert refused == ["model.safetensors", "last.ckpt"]
    resume(run)
    ours, theirs = (Predictions.load(one / "predictions" / "test.npz") for one in (run, whole))
    assert (ours.scores == theirs.scores).all()
