"""A study on a real local Ray, one of whose workers is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ray_workers import processes_of
from study_kills import write_vectors

pytestmark = pytest.mark.slow
pytest.importorskip("ray", reason="the extra ray is not installed")


def compare(data: Path, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    options = "--methods bce,asl --seeds 0,1 --epochs 4 --posthoc none --learning-rate 1e-3 --log csv"
    command = ["compare", f"features:{data}", *options.split(), "--output", str(folder), *more]
    return subprocess.run([sys.executable, "-m", "kmcl", *command], capture_output=True, text=True)


def kill_a_worker(folder: Path, killed: list[int]) -> None:
    """End one process that trains, once a member has a checkpoint."""
    end = time.monotonic() + 300
    while time.monotonic() < end and not list(folder.glob("members/*/checkpoints/last.ckpt")):
        time.sleep(0.05)
    killed.append(processes_of("_train")[0])
    os.kill(killed[0], signal.SIGKILL)


def test_a_study_goes_on_though_a_worker_is_killed(tmp_path: Path):
    data, folder = write_vectors(tmp_path / "vectors.npz"), tmp_path / "ray"
    killed: list[int] = []
    thread = threading.Thread(target=kill_a_worker, args=(folder, killed))
    thread.start()
    on_ray = compare(data, folder, "--ray", "local", "--jobs", "2")
    thread.join()
    assert killed
    assert on_ray.returncode == 0, on_ray.stderr
    assert compare(data, tmp_path / "here").returncode == 0
    members = sorted(path.name for path in (folder / "members").iterdir())
    assert len(members) == 4
    for name in members:
        found, expected = (
            np.load(place / "members" / name / "predictions" / "test.npz")["scores"]
            for place in (folder, tmp_path / "here")
        )
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_an_address_without_a_cluster_is_an_error(tmp_path: Path):
    result = compare(write_vectors(tmp_path / "vectors.npz"), tmp_path / "study", "--ray", "127.0.0.1:1")
    assert result.returncode == 2
    assert "--ray: no Ray cluster at '127.0.0.1:1'" in result.stderr
