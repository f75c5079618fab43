"""What ends a run early ends it with one message, the right status and a run that can be resumed."""

from __future__ import annotations

import csv
import os
import resource
import signal
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kmcl.data import open_dataset
from kmcl.data.shard_writing import write_shards
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.runs.resolution import resolve_settings
from kmcl.storage.atomic import WriteError
from kmcl.training.lightning import Callback, Trainer
from kmcl.training.machine import check_accelerator
from prepared_program import Program
from settings_runs import resume, train
from tiny_runs import TINY_CACHED

ENDLESS = TINY_CACHED | {"epochs": 500, "frozen_stages": 0, "cached_views": 0}
TINY = TINY_CACHED | {"encoder": "test_convnext", "query_width": 128, "frozen_stages": 0, "cached_views": 0}


def flags_of(values: dict[str, object]) -> list[str]:
    given = {name.replace("_", "-"): value for name, value in values.items() if name != "data_options"}
    return [*(f"--{name}={value}" for name, value in given.items()), "--option=size=120"]


def start(run: Path, *flags: str) -> Program:
    """A run that does not end by itself."""
    return Program(
        run.with_suffix(".txt"), "train", "digits", *flags_of(ENDLESS), *flags, "--output", str(run)
    )


def wait_for(condition: Callable[[], bool], process: Program) -> None:
    deadline = time.monotonic() + 600  # on a machine that is busy with something else
    while not condition():
        assert process.is_running, process.errors
        assert time.monotonic() < deadline
        time.sleep(0.02)


def wait_for_epoch(run: Path, process: Program) -> None:
    wait_for((run / "checkpoints" / "last.ckpt").is_file, process)


def children_of(process: Program) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Not ended; an ended process may wait a while for whoever collects its status."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def epochs_of(run: Path) -> list[dict[str, float]]:
    with (run / "epochs.csv").open() as file:
        return [{k: float(v) for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


def has_epochs(run: Path, number: int) -> bool:
    return (run / "epochs.csv").is_file() and len(epochs_of(run)) >= number


def test_killed_anywhere_it_goes_on_to_the_same_numbers(tmp_path: Path):
    """kill -9 in the middle of an epoch, again in a later one, then to the end."""
    values, whole, run = TINY | {"epochs": 3}, tmp_path / "whole", tmp_path / "killed"
    train(resolve_settings("digits", flags=values), whole)
    arguments = ["digits", *flags_of(values), "--output", str(run)]
    for num_epochs in (1, 2):
        process = Program(tmp_path / "errors.txt", "train", *arguments)
        wait_for(partial(has_epochs, run, num_epochs), process)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert not (run / "metrics.json").exists()
        arguments = ["--resume", str(run)]
    resume(run)
    for left, right in zip(epochs_of(run), epochs_of(whole), strict=True):
        assert left == pytest.approx(right, rel=1e-6)
    left, right = (Predictions.load(one / "predictions" / "test.npz") for one in (run, whole))
    np.testing.assert_allclose(left.scores, right.scores, atol=1e-6)


def test_ctrl_c_ends_it_with_how_to_go_on(tmp_path: Path):
    run = tmp_path / "run"
    process = start(run, "--workers", "1")
    wait_for_epoch(run, process)
    workers = children_of(process)
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 130, process.errors
    assert workers
    end = time.monotonic() + 120  # a worker notices a moment later that its parent is gone
    while any(is_alive(pid) for pid in workers):
        assert time.monotonic() < end, workers
        time.sleep(0.05)
    assert f"resume with: kmcl train --resume {run}" in process.errors
    assert "Traceback" not in process.errors
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] >= 0


def test_sigterm_ends_it_as_ctrl_c_does(tmp_path: Path):
    run = tmp_path / "run"
    process = start(run)
    wait_for_epoch(run, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 143, process.errors
    assert process.errors == (
        f"The last finished epoch is in {run}/checkpoints/last.ckpt; resume with: kmcl train --resume {run}\n"
        f"The best model so far can be used: kmcl predict {run} IMAGES\n"
    )


def test_a_killed_worker_is_a_message(tmp_path: Path):
    run = tmp_path / "run"
    process = start(run, "--workers", "1")
    wait_for_epoch(run, process)
    for pid in children_of(process):
        os.kill(pid, signal.SIGKILL)
    assert process.wait(120) == 1, process.errors
    first, second = process.errors.splitlines()[:2]
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


@pytest.mark.parametrize("kind", ["images", "shards", "cached features"])
def test_killed_inside_an_epoch_it_goes_on_from_the_last_checkpoint_there(tmp_path: Path, kind: str):
    """Six batches an epoch, a checkpoint after two and four: the run dies after the fifth of the second.

    With dropout in the label queries, whose random numbers have to be those of the uninterrupted run.
    """
    values = TINY_CACHED if kind == "cached features" else TINY
    values = values | {"epochs": 3, "checkpoint_steps": 2, "query_width": 128}
    data = "digits"
    if kind == "shards":
        write_shards(open_dataset("digits", size=120), tmp_path / "shards", 16)
        data, values = f"shards:{tmp_path / 'shards'}", values | {"data_options": {}, "workers": 2}
    settings = resolve_settings(data, flags=values)
    whole, run = tmp_path / "whole", tmp_path / "killed"
    train(settings, whole)
    trained: list[tuple[int, int]] = []

    class Die(Callback):
        def on_train_batch_end(self, trainer: Trainer, *arguments: Any) -> None:
            trained.append((trainer.current_epoch, arguments[-1]))
            if trained[-1] == (1, 4):
                raise MemoryError("killed")

    with pytest.raises(MemoryError, match="killed"):
        train(settings, run, callbacks=[Die()])
    assert len(trained) == 6 + 5
    saved = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert (saved["epoch"], saved["global_step"]) == (1, 6 + 4)
    resume(run)
    found, expected = (
        torch.load(path / "checkpoints" / "last.ckpt", weights_only=True) for path in (run, whole)
    )
    assert found["global_step"] == expected["global_step"] == 18
    torch.testing.assert_close(found["state_dict"], expected["state_dict"], rtol=0, atol=0)
    one, other = (Predictions.load(path / "predictions" / "test.npz") for path in (run, whole))
    np.testing.assert_array_equal(one.scores, other.scores)
    assert [row["val/map_best"] for row in epochs_of(run)] == [
        row["val/map_best"] for row in epochs_of(whole)
    ]
