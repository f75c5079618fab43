"""`torchrun` over several hosts: the numbers of one process, lost hosts, resuming, restarts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from hosts.network import Network, elastic_torchrun, log_of, missing_rights
from hosts.trainings import (
    assert_same_numbers,
    environment,
    start_on_hosts,
    train_words,
    wait_for,
    wait_until_all_end,
)
from kmcl.data import open_dataset

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif((reason := missing_rights()) is not None, reason=reason or ""),
]

EPOCHS = 6
CACHED = {"frozen_stages": 2, "cached_views": 1}


def in_one_process(folder: Path, words: list[str]) -> None:
    command = [sys.executable, "-m", "kmcl", *words]
    ended = subprocess.run(command, env=environment(folder / "cache"), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def one_process(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("one")
    in_one_process(folder, train_words(folder / "run", EPOCHS))
    return folder / "run"


@pytest.mark.parametrize("count", [2, 4])
def test_hosts_train_like_one_process(one_process: Path, tmp_path: Path, count: int):
    run = tmp_path / "run"
    with Network(count) as network:
        processes = start_on_hosts(network, count, tmp_path, train_words(run, EPOCHS))
        wait_until_all_end(processes, tmp_path)
    assert_same_numbers(run, one_process)


@pytest.fixture(scope="module")
def table(tmp_path_factory) -> Path:
    """The digits as files and a table."""
    folder = tmp_path_factory.mktemp("table")
    rows = ["image,split," + ",".join(map(str, range(10)))]
    for name, split in open_dataset("digits", size=400).splits.items():
        for index, target in enumerate(split.targets):
            file = f"{name}-{index}.png"
            Image.fromarray(split.images.load(index)).save(folder / file)
            rows.append(f"{file},{name}," + ",".join(map(str, target.tolist())))
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder / "labels.csv"


def test_hosts_train_on_cached_features_of_a_table_like_one_process(table: Path, tmp_path: Path, monkeypatch):
    """How they share the work depends on when each begins: `tests/storage/test_chunk_parts.py`."""
    run, reference = tmp_path / "run", tmp_path / "one"
    in_one_process(tmp_path, train_words(reference, 2, f"table:{table}", **CACHED))
    monkeypatch.setenv("KMCL_CACHE", str(tmp_path / "shared"))
    with Network(2) as network:
        processes = start_on_hosts(network, 2, tmp_path, train_words(run, 2, f"table:{table}", **CACHED))
        wait_until_all_end(processes, tmp_path)
    assert_same_numbers(run, reference)


def lose_a_host(
    folder: Path, epochs: int, lose: Callable[[Network], None], expected: list[int]
) -> tuple[Path, list[str]]:
    """What `expected` hosts said when they ended, within a minute."""
    run = folder / "run"
    with Network(2) as network:
        processes = start_on_hosts(network, 2, folder, train_words(run, epochs))
        wait_for(run / "checkpoints" / "last.ckpt", processes, folder)
        lost = time.monotonic()
        lose(network)
        for number in expected:
            left = 60 - (time.monotonic() - lost)
            assert processes[number].wait(left) != 0, log_of(folder, number).read_text()
    return run, [log_of(folder, number).read_text() for number in expected]


def assert_one_message(said: str, run: Path) -> None:
    assert said.count("kmcl: another process of this training was lost") == 1, said
    assert f"resume with: kmcl train --resume {run}" in said
    # torchrun adds its own report, with the status; kmcl itself adds no traceback.
    assert "Traceback" not in said.partition("kmcl: another process")[0]


@pytest.mark.parametrize("killed", [0, 1])
def test_a_killed_host_is_one_message_on_the_other(tmp_path: Path, killed: int):
    run, (said,) = lose_a_host(tmp_path, 2000, lambda network: network.kill(killed), [1 - killed])
    assert_one_message(said, run)


def test_a_cut_link_is_one_message_on_both(tmp_path: Path):
    run, heard = lose_a_host(tmp_path, 2000, lambda network: network.cut(1), [0, 1])
    for said in heard:
        assert_one_message(said, run)


@pytest.mark.parametrize("count", [1, 4])
def test_a_run_of_two_hosts_is_resumed_by_one_or_four(one_process: Path, tmp_path: Path, count: int):
    """To the numbers of a run that was never interrupted."""
    run, _ = lose_a_host(tmp_path, EPOCHS, lambda network: network.kill(1), [0])
    assert not (run / "metrics.json").exists()
    words = ["train", "--resume", str(run)]
    if count == 1:
        refused = subprocess.run([sys.executable, "-m", "kmcl", *words], capture_output=True, text=True)
        assert refused.returncode == 2
        assert "add --nodes 1 to continue on this one" in refused.stderr
        in_one_process(tmp_path, [*words, "--nodes", "1"])
    else:
        with Network(count) as network:
            wait_until_all_end(start_on_hosts(network, count, tmp_path, words), tmp_path)
    assert_same_numbers(run, one_process)


def test_torchrun_restarts_a_killed_process(one_process: Path, tmp_path: Path):
    """The processes of all hosts start again and continue the run after its last epoch."""
    run = tmp_path / "run"
    with Network(2) as network:
        words = train_words(run, EPOCHS)
        processes = start_on_hosts(network, 2, tmp_path, words, elastic_torchrun)
        wait_for(run / "checkpoints" / "last.ckpt", processes, tmp_path)
        assert not (run / "metrics.json").exists()
        (worker,) = [process for process in network.processes(1) if process != processes[1].pid]
        os.kill(worker, signal.SIGKILL)
        wait_until_all_end(processes, tmp_path)
    said = log_of(tmp_path, 0).read_text()
    assert f"{run}: continues, with the settings it was started with" in said
    assert_same_numbers(run, one_process)
