"""A chunk file that several processes compute together: each its part, and what a killed one has left."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from kmcl.storage.chunk_file import Chunk, PartedChunkFile

NUM_ROWS, CHUNK_ROWS = 23, 2
STARTS = list(range(0, NUM_ROWS, CHUNK_ROWS))
ROWS = np.arange(NUM_ROWS * 3, dtype=np.float16).reshape(NUM_ROWS, 3)


def parted(folder: Path) -> PartedChunkFile:
    return PartedChunkFile(
        folder / "name.features", NUM_ROWS, (3,), dtype="<f2", chunk_rows=CHUNK_ROWS, about={}
    )


class Computation:
    """Gives the chunks of ROWS, calls `before` before each, and remembers which were computed."""

    def __init__(self, before=lambda number: None) -> None:
        self.before = before
        self.computed: list[int] = []

    def __call__(self, starts: Sequence[int]) -> Iterator[Chunk]:
        for number, start in enumerate(starts):
            self.before(number)
            self.computed.append(start)
            yield Chunk(ROWS[start : start + CHUNK_ROWS], {4: "broken"} if start == 4 else {})


def test_each_process_computes_its_part(tmp_path: Path):
    """Threads instead of processes: locks exclude them as well. They are at work at the same time, or the
    barrier before the first chunk would not open.
    """
    barrier = threading.Barrier(3)
    work = [Computation(lambda number: barrier.wait(60) if number == 0 else None) for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        unreadable = list(
            pool.map(lambda part: parted(tmp_path).complete_together(work[part], part, 3), range(3))
        )
    assert [computation.computed for computation in work] == [STARTS[0::3], STARTS[1::3], STARTS[2::3]]
    assert unreadable == [{4: "broken"}] * 3
    np.testing.assert_array_equal(parted(tmp_path).rows(), ROWS)
    assert not [*tmp_path.glob("*.partial"), *tmp_path.glob("*.part-*.chunks")]
    again = Computation()
    assert parted(tmp_path).complete(again) == {4: "broken"}
    assert again.computed == []


def interrupt_at(place: int):
    def before(number: int) -> None:
        if number == place:
            raise KeyboardInterrupt

    return before


def test_what_an_interrupted_part_has_left_is_computed_by_another(tmp_path: Path):
    """Also by another number of processes, which finds the chunks that are there."""
    with pytest.raises(KeyboardInterrupt):
        parted(tmp_path).complete_together(Computation(interrupt_at(2)), 1, 4)
    assert not (tmp_path / "name.features").exists()
    rest = Computation()
    parted(tmp_path).complete_together(rest, 0, 3)
    there = STARTS[1::4][:2]
    assert sorted(rest.computed) == [start for start in STARTS if start not in there]
    np.testing.assert_array_equal(parted(tmp_path).rows(), ROWS)


def test_a_damaged_chunk_of_a_part_is_computed_again(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        parted(tmp_path).complete_together(Computation(interrupt_at(3)), 0, 2)
    damaged = STARTS[0::2][1]
    with (tmp_path / "name.features.partial").open("r+b") as file:
        file.seek(damaged * 6)
        file.write(b"\xff")
    rest = Computation()
    parted(tmp_path).complete_together(rest, 0, 2)
    assert sorted(rest.computed) == [
        start for start in STARTS if start not in STARTS[0::2][:3] or start == damaged
    ]
    np.testing.assert_array_equal(parted(tmp_path).rows(), ROWS)


HOLDER = """
import sys, time
from pathlib import Path
from kmcl.storage.locks import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path: Path):
    """A process at work on part 1 of 2."""
    lock = tmp_path / "name.part-1-of-2.lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(lock)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_part_at_work_is_waited_for(tmp_path: Path, holder: subprocess.Popen[str]):
    computation, before_waiting = Computation(), []

    def on_wait() -> None:
        before_waiting.extend(computation.computed)
        holder.kill()  # the system releases its lock

    parted(tmp_path).complete_together(computation, 0, 2, on_wait=on_wait)
    assert before_waiting == STARTS[0::2]
    assert sorted(computation.computed) == STARTS


def test_the_whole_file_waits_for_a_part_at_work(tmp_path: Path, holder: subprocess.Popen[str]):
    computation = Computation()
    thread = threading.Thread(target=parted(tmp_path).complete, args=(computation,))
    thread.start()
    thread.join(0.5)
    assert thread.is_alive()
    assert computation.computed == []
    holder.kill()
    thread.join(60)
    assert computation.computed == STARTS
