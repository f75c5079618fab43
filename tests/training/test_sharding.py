"""Sharded weights: the numbers of whole ones, checkpoints that any other run reads, and what is refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.runs.resolution import resolve_settings
from kmcl.training.sharding import check_sharding
from kmcl.training.task import MovingAverage
from settings_runs import resume
from sharded_classifier import make_classifier, make_images, run_in_two_processes, train_one_step

TINY = {
    "encoder": "test_convnext",
    "weights": "none",
    "image_size": 32,
    "augmentation": "none",
    "learning_rate": 2e-3,
    "batch_size": 20,
    "epochs": 3,
    "head_epochs": 1,
    "clip_norm": 1.0,
    "workers": 0,
    "query_width": 0,
    "posthoc": "none",
    "accelerator": "cpu",
    "log": "csv",
}


def test_a_step_with_sharded_weights_is_that_of_whole_ones(tmp_path: Path):
    found = run_in_two_processes(tmp_path)
    classifier = make_classifier()
    average = MovingAverage(classifier, 0.5, warmup=False)
    logits = train_one_step(classifier, average, make_images())
    torch.testing.assert_close(torch.cat([one["logits"] for one in found]), logits)
    expected = average.model(make_images()).logits
    torch.testing.assert_close(torch.cat([one["averaged_logits"] for one in found]), expected)
    for state, model in zip(found[0]["states"], (classifier, average.model), strict=True):
        assert state.keys() == model.state_dict().keys()
        torch.testing.assert_close(state, dict(model.state_dict()))
    num_weights = sum(parameter.numel() for parameter in classifier.parameters())
    held = [one["held"] for one in found]
    assert sum(held) == num_weights
    assert max(held) < 0.6 * num_weights


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"frozen_stages": 2, "cached_views": 1}, "--strategy fsdp: cached features leave little to train"),
        ({"precision": "16"}, "--precision must be 32 or bf16; got 16"),
        ({"compile": True}, "--compile is not supported"),
    ],
)
def test_what_sharding_does_not_go_with_is_refused(flags: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        check_sharding(resolve_settings("digits", flags=flags | {"strategy": "fsdp"}))
    check_sharding(resolve_settings("digits", flags=flags))


def start(*arguments: str) -> subprocess.Popen[str]:
    """Not a `Program`: Lightning starts the second process by the same command."""
    command = [sys.executable, "-m", "kmcl", "train", *arguments]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def start_run(run: Path, strategy: str) -> subprocess.Popen[str]:
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in TINY.items()]
    places = ["--devices=2", f"--strategy={strategy}", f"--output={run}"]
    return start("digits", *flags, "--option=size=120", *places)


def finish(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=900)
    assert process.returncode == 0, errors


def assert_same(run: Path, reference: Path) -> None:
    one, other = (Predictions.load(path / "predictions" / "test.npz") for path in (reference, run))
    np.testing.assert_allclose(other.scores, one.scores, atol=1e-4)


@pytest.mark.slow
def test_runs_are_those_of_ddp_and_continue_with_any_number_of_processes(tmp_path: Path):
    """Head alone in the first epoch, clipped gradients, moving average: the same weights and moments."""
    ddp, fsdp, alone = tmp_path / "ddp", tmp_path / "fsdp", tmp_path / "alone"
    finish(start_run(ddp, "ddp"))
    process = start_run(fsdp, "fsdp")
    while not (fsdp / "checkpoints" / "last.ckpt").is_file():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    process.communicate(timeout=60)
    shutil.copytree(fsdp, alone)
    resume(alone, devices=1)
    finish(start("--resume", str(fsdp)))
    for run in (fsdp, alone):
        assert_same(run, ddp)
        found, expected = (
            torch.load(path / "checkpoints" / "last.ckpt", weights_only=True) for path in (run, ddp)
        )
        for part in ("state_dict", "optimizer_states"):
            torch.testing.assert_close(found[part], expected[part], rtol=1e-3, atol=1e-5)
