"""A chunk file: complete, resumed, damaged, wanted by two processes at once, on a full disk."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kmcl.storage import chunk_file as storage
from kmcl.storage.atomic import WriteError
from kmcl.storage.chunk_file import Chunk, ChunkFile

CHUNK_ROWS = 64
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


def chunk_file(folder: Path, dtype: str = "<f2") -> ChunkFile:
    about = {"what": "a test"}
    return ChunkFile(
        folder / "name.features", NUM_ROWS, (3, 2), dtype=dtype, chunk_rows=CHUNK_ROWS, about=about
    )


def complete(folder: Path, computation: Computation | None = None) -> list[int]:
    """Complete the file, check what is in it, and return the chunks that had to be computed."""
    computation = computation or Computation()
    file = chunk_file(folder)
    unreadable = file.complete(computation)
    assert unreadable == computation.unreadable
    np.testing.assert_array_equal(file.rows(), ROWS)
    assert not list(folder.glob("*.partial"))
    return computation.asked


def test_computed_once_then_read(tmp_path: Path):
    assert chunk_file(tmp_path).num_missing_bytes == NUM_ROWS * 12
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]
    assert complete(tmp_path) == []
    assert chunk_file(tmp_path).num_missing_bytes == 0


def test_an_interruption_costs_the_chunk_it_came_in(tmp_path: Path):
    with pytest.raises(KeyboardInterrupt):
        complete(tmp_path, Computation(fail_at=2))
    assert not (tmp_path / "name.features").exists()
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
    with (tmp_path / "name.features").open("r+b") as file:
        file.seek(CHUNK_ROWS * 12 + 5)
        file.write(b"\xff")
    assert complete(tmp_path) == [CHUNK_ROWS]


@pytest.mark.parametrize("size", [0, 100, NUM_ROWS * 12 - 1, NUM_ROWS * 12 + 1])
def test_a_file_of_another_length_is_not_used(tmp_path: Path, size: int):
    complete(tmp_path)
    with (tmp_path / "name.features").open("r+b") as file:
        file.truncate(size)
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]


def test_rows_without_their_checksums_or_of_another_shape_or_type_are_not_used(tmp_path: Path):
    complete(tmp_path)
    (tmp_path / "name.chunks").unlink()
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]
    journal = tmp_path / "name.chunks"
    header, rest = journal.read_text().split("\n", 1)
    journal.write_text(json.dumps(json.loads(header) | {"row_shape": [2, 3]}) + "\n" + rest)
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]
    computation = Computation()
    chunk_file(tmp_path, "<i2").complete(computation)  # as many bytes
    assert computation.asked == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]


def test_unreadable_images_are_remembered(tmp_path: Path):
    unreadable = {3: "image a.jpg cannot be decoded", CHUNK_ROWS: "image b.jpg does not exist"}
    complete(tmp_path, Computation(unreadable=unreadable))
    assert chunk_file(tmp_path).complete(Computation()) == unreadable


def test_images_that_have_become_readable_are_computed_again(tmp_path: Path):
    unreadable = {3: "image a.jpg cannot be decoded", CHUNK_ROWS: "image b.jpg does not exist"}
    complete(tmp_path, Computation(unreadable=unreadable))
    again = Computation()
    found = chunk_file(tmp_path).complete(again, is_readable=lambda row: row == 3)
    assert again.asked == [0]
    assert found == {CHUNK_ROWS: unreadable[CHUNK_ROWS]}


@pytest.mark.parametrize("keep_partial", [True, False])
def test_after_a_full_disk_the_chunks_stay_or_go(tmp_path: Path, monkeypatch, keep_partial: bool):
    written: list[int] = []
    write = storage._write

    def fill_up(file: object, data: bytes, offset: int) -> None:
        written.append(offset)
        if len(written) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, data, offset)

    monkeypatch.setattr(storage, "_write", fill_up)
    needed = ROWS[2 * CHUNK_ROWS :].nbytes
    reason = (
        rf"name\.features: cannot be written: No space left on device \({needed:,} bytes needed, [\d,]+ bytes"
    )
    with pytest.raises(WriteError, match=reason):
        chunk_file(tmp_path).complete(Computation(), keep_partial=keep_partial)
    left = {path.name for path in tmp_path.iterdir()}
    assert left == ({"name.chunks", "name.features.partial"} if keep_partial else set()) | {"name.lock"}
    monkeypatch.undo()
    assert complete(tmp_path) == ([2 * CHUNK_ROWS] if keep_partial else [0, CHUNK_ROWS, 2 * CHUNK_ROWS])


def test_a_disk_that_refuses_the_journal(tmp_path: Path, monkeypatch):
    def refuse(journal: object, line: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "_append", refuse)
    for take in (lambda file: file.complete(Computation()), lambda file: file.some_rows([0], Computation())):
        with pytest.raises(WriteError, match=r"name\.features: cannot be written: No space left"):
            take(chunk_file(tmp_path))
    monkeypatch.undo()
    assert complete(tmp_path) == [0, CHUNK_ROWS, 2 * CHUNK_ROWS]


def test_a_disk_that_refuses_the_lock(tmp_path: Path, monkeypatch):
    @contextmanager
    def refuse(path: Path, on_wait: object) -> Iterator[None]:
        raise OSError(errno.ENOSPC, "No space left on device")
        yield

    monkeypatch.setattr(storage, "locked", refuse)
    with pytest.raises(WriteError, match=rf"\({ROWS.nbytes:,} bytes needed, "):
        chunk_file(tmp_path).complete(Computation())


def test_what_computing_cannot_read_is_not_taken_for_a_refused_write(tmp_path: Path):
    def fail(starts: object) -> Iterator[Chunk]:
        raise OSError(errno.EIO, "Input/output error", "image.png")
        yield

    with pytest.raises(OSError, match="Input/output error") as caught:
        chunk_file(tmp_path).complete(fail)
    assert not isinstance(caught.value, WriteError)


def test_a_chunk_of_the_wrong_size_is_an_error(tmp_path: Path):
    with pytest.raises(ValueError, match="bytes instead of"):
        chunk_file(tmp_path).complete(lambda starts: iter([Chunk(ROWS[:5], {})] * 3))


HOLDER = """
import sys, time
from pathlib import Path
from kmcl.storage.locks import locked
with locked(Path(sys.argv[1])):
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
        assert not (tmp_path / "name.features.partial").exists()
        holder.kill()  # the system releases its lock

    chunk_file(tmp_path).complete(Computation(), on_wait=on_wait)
    holder.wait()
    assert len(waited) == 1
    np.testing.assert_array_equal(chunk_file(tmp_path).rows(), ROWS)


def test_some_rows_are_computed_alone_and_not_again(tmp_path: Path):
    file, computation = chunk_file(tmp_path), Computation(unreadable={70: "broken"})
    rows, unreadable = file.some_rows([CHUNK_ROWS], computation)
    np.testing.assert_array_equal(rows, ROWS[CHUNK_ROWS : 2 * CHUNK_ROWS])
    assert unreadable == {70: "broken"}
    assert computation.asked == [CHUNK_ROWS]
    again = Computation(fail_at=0)
    np.testing.assert_array_equal(file.some_rows([CHUNK_ROWS], again)[0], rows)
    rest = Computation(unreadable={70: "broken"})
    assert file.complete(rest) == {70: "broken"}
    assert rest.asked == [0, 2 * CHUNK_ROWS]
    np.testing.assert_array_equal(file.rows(), ROWS)


def test_some_rows_of_a_complete_file(tmp_path: Path):
    complete(tmp_path)
    rows, _ = chunk_file(tmp_path).some_rows([2 * CHUNK_ROWS, 0], Computation(fail_at=0))
    np.testing.assert_array_equal(rows, np.concatenate([ROWS[2 * CHUNK_ROWS :], ROWS[:CHUNK_ROWS]]))
