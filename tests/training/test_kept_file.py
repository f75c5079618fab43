"""The file of kept maps: complete, resumed, damaged, wanted by two processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from kmcl.training.kept_file import CHUNK_ROWS, Chunk, KeptFile

NUM_ROWS = 2 * CHUNK_ROWS + 10
ROWS = np.random.default_rng(0).normal(size=(NUM_ROWS, 3, 2)).astype(np.float16)


class Computation:
    """Gives the chunks of ROWS and remembers which were asked for; fails before chunk number `fail_at`."""

    def __init__(self, fail_at: int | None = None, unreadable: dict[int, str] | None = None) -> None:
        self.asked: list[int] = []
        self.fail_at = fail_at
        self.unreadable = unreadable or {}

    def __call__(self, starts: Sequence[int]) -> Iterator[Chunk]:
        self.asked = list(starts)
        for number, start in enumerate(starts):
            if number == self.fail_at:
                raise KeyboardInterrupt
            rows = ROWS[start : start + CHUNK_ROWS]
            bad = {row: why for row, why in self.unreadable.items() if start <= row < start + len(rows)}
            yield Chunk(rows, bad)


def kept_file(folder: Path) -> KeptFile:
    return KeptFile(folder / "name.maps", NUM_ROWS, (3, 2), {"what": "a test"})


def complete(folder: Path, computation: Computation | None = None) -> list[int]:
    """Complete the file, check what is in it, and return the chunks that had to be computed."""
    computation = computation or Computation()
    file = kept_file(folder)
    unreadable = file.complete(computation, on_wait=lambda: None)
    assert unreadable == computation.unreadable
    np.testing.assert_array_equal(file.rows(), ROWS)
    assert not list(folder.glob("*.partial"))
    return computation.asked


def test_computed_once_then_read(tmp_path: Path):
    assert kept_file(tmp_path).num_missing_bytes == NUM_ROWS * 12
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]
    assert complete(tmp_path) == []
    assert kept_file(tmp_path).num_missing_bytes == 0


def test_an_interruption_costs_the_chunk_it_came_in(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        complete(tmp_path, Computation(fail_at=2))
    assert not (tmp_path / "name.maps").exists()
    assert complete(tmp_path) == [2 * CHUNK_ROWS]


def test_a_record_cut_off_by_a_kill_does_not_count(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        complete(tmp_path, Computation(fail_at=2))
    journal = tmp_path / "name.chunks"
    journal.write_text(journal.read_text()[:-20])
    assert complete(tmp_path) == [CHUNK_ROWS, 2 * CHUNK_ROWS]
    assert complete(tmp_path) == []


def test_a_damaged_chunk_is_computed_again(tmp_path: Path):
    complete(tmp_path)
    with (tmp_path / "name.maps").open("r+b") as file:
        file.seek(CHUNK_ROWS * 12 + 5)
        file.write(b"\xff")
    assert complete(tmp_path) == [CHUNK_ROWS]


@pytest.mark.parametrize("size", [0, 100, NUM_ROWS * 12 - 1, NUM_ROWS * 12 + 1])
def test_a_file_of_another_length_is_not_used(tmp_path: Path, size: int):
    complete(tmp_path)
    with (tmp_path / "name.maps").open("r+b") as file:
        file.truncate(size)
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]


def test_maps_without_their_checksums_or_of_another_shape_are_not_used(tmp_path: Path):
    complete(tmp_path)
    (tmp_path / "name.chunks").unlink()
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]
    journal = tmp_path / "name.chunks"
    header, rest = journal.read_text().split("\n", 1)
    journal.write_text(json.dumps(json.loads(header) | {"row_shape": [2, 3]}) + "\n" + rest)
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]


def test_unreadable_images_are_remembered(tmp_path: Path):
    unreadable = {3: "image a.jpg cannot be decoded", CHUNK_ROWS: "image b.jpg does not exist"}
    complete(tmp_path, Computation(unreadable=unreadable))
    assert kept_file(tmp_path).complete(Computation(), on_wait=lambda: None) == unreadable


def test_a_chunk_of_the_wrong_size_is_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match="bytes instead of"):
        kept_file(tmp_path).complete(lambda starts: iter([Chunk(ROWS[:5], {})] * 3), on_wait=lambda: None)


HOLDER = """
import fcntl, sys, time
with open(sys.argv[1], "a") as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_process_waits_and_says_so(tmp_path: Path):
    lock = tmp_path / "name.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    waited: list[float] = []

    def on_wait() -> None:
        waited.append(time.monotonic())
        assert not (tmp_path / "name.maps.partial").exists()
        holder.kill()  # the system releases its lock

    kept_file(tmp_path).complete(Computation(), on_wait)
    holder.wait()
    assert len(waited) == 1
    np.testing.assert_array_equal(kept_file(tmp_path).rows(), ROWS)
