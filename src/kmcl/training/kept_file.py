"""A file of maps, computed once and shared by runs: whole or resumed, never half trusted.

`NAME.maps` holds the rows, float16, one after the other; `NAME.chunks` says in JSON lines what they are and,
for each chunk of rows, its checksum and which of its images could not be read. Until every chunk is there the
rows are in `NAME.maps.partial`. A chunk counts only with its checksum, so whatever interrupts the work
(Ctrl-C, kill -9, a full disk), the next process computes what is missing or damaged and no more. A lock lets
one process compute at a time; the others wait and find the work done.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kmcl.training.run_folder import write_text

CHUNK_ROWS = 64

Maps = npt.NDArray[np.float16]


class Chunk(NamedTuple):
    """Rows of a file as they were computed; unreadable: row -> why its image could not be read."""

    rows: Maps
    unreadable: dict[int, str]


class _Record(NamedTuple):
    checksum: int
    unreadable: dict[int, str]


class KeptFile:
    """One file of maps. `about` says what they are of, for people; the name is what tells files apart."""

    def __init__(self, path: Path, num_rows: int, row_shape: tuple[int, ...], about: dict[str, Any]) -> None:
        self.path = path
        self.num_rows = num_rows
        self.row_shape = row_shape
        self._header = {
            "num_rows": num_rows,
            "row_shape": list(row_shape),
            "chunk_rows": CHUNK_ROWS,
            "about": about,
        }
        self._row_bytes = 2 * int(np.prod(row_shape))
        self._partial = path.with_name(path.name + ".partial")
        self._journal = path.with_suffix(".chunks")

    @property
    def starts(self) -> list[int]:
        """The first row of each chunk."""
        return list(range(0, self.num_rows, CHUNK_ROWS))

    @property
    def num_bytes(self) -> int:
        return self.num_rows * self._row_bytes

    @property
    def num_missing_bytes(self) -> int:
        """What completing the file may take of the disk, without reading what is there."""
        if self.path.exists():
            return 0
        with contextlib.suppress(OSError):
            return max(0, self.num_bytes - self._partial.stat().st_blocks * 512)
        return self.num_bytes

    def complete(
        self, compute: Callable[[Sequence[int]], Iterator[Chunk]], on_wait: Callable[[], None]
    ) -> dict[int, str]:
        """Make the file complete; returns why each unreadable image is so.

        compute: gets the first rows of the chunks that are needed and gives these chunks in that order.
        on_wait: called once when another process is at work on the file.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.with_suffix(".lock"), on_wait):
            records = self._verified(self.path)
            if len(records) < len(self.starts):
                if self.path.exists():
                    os.replace(self.path, self._partial)
                records = self._verified(self._partial)
                self._fill(records, compute)
        return {row: why for record in records.values() for row, why in record.unreadable.items()}

    def rows(self) -> Maps:
        """The rows of a complete file, mapped into memory and shared with every process that reads them."""
        return np.memmap(self.path, dtype="<f2", mode="r", shape=(self.num_rows, *self.row_shape))

    def _fill(self, records: dict[int, _Record], compute: Callable[[Sequence[int]], Iterator[Chunk]]) -> None:
        """Compute the chunks without a record, add their records, and give the file its final name."""
        lines = [self._header, *(_line(start, record) for start, record in sorted(records.items()))]
        write_text(self._journal, "".join(json.dumps(line) + "\n" for line in lines))
        missing = [start for start in self.starts if start not in records]
        mode = "r+b" if self._partial.exists() else "w+b"
        with (
            self._partial.open(mode, buffering=0) as file,
            self._journal.open("a", encoding="utf-8") as journal,
        ):
            file.truncate(self.num_bytes)
            for start, chunk in zip(missing, compute(missing), strict=True):
                data = np.ascontiguousarray(chunk.rows, dtype="<f2").tobytes()
                expected = self._chunk_bytes(start)
                if len(data) != expected:
                    raise ValueError(f"chunk {start} has {len(data)} bytes instead of {expected}")
                _write(file, data, start * self._row_bytes)
                records[start] = _Record(zlib.crc32(data), chunk.unreadable)
                journal.write(json.dumps(_line(start, records[start])) + "\n")
                journal.flush()
            os.fsync(file.fileno())
            os.fsync(journal.fileno())
        os.replace(self._partial, self.path)

    def _verified(self, path: Path) -> dict[int, _Record]:
        """The chunks of a file whose bytes are those that were written."""
        if not path.exists() or path.stat().st_size != self.num_bytes:
            return {}
        data = np.memmap(path, dtype=np.uint8, mode="r")
        verified = {}
        for start, record in self._read_journal().items():
            first = start * self._row_bytes
            if zlib.crc32(data[first : first + self._chunk_bytes(start)].data) == record.checksum:
                verified[start] = record
        return verified

    def _read_journal(self) -> dict[int, _Record]:
        try:
            header, *lines = self._journal.read_text(encoding="utf-8").splitlines()
            found = json.loads(header)
            if any(found[name] != self._header[name] for name in ("num_rows", "row_shape", "chunk_rows")):
                return {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        starts = set(self.starts)
        records = {}
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # cut off by a kill
                entry = json.loads(line)
                unreadable = {int(row): str(why) for row, why in entry["unreadable"].items()}
                if entry["first_row"] in starts:
                    records[entry["first_row"]] = _Record(entry["checksum"], unreadable)
        return records

    def _chunk_bytes(self, start: int) -> int:
        return (min(start + CHUNK_ROWS, self.num_rows) - start) * self._row_bytes


def _line(start: int, record: _Record) -> dict[str, Any]:
    return {"first_row": start, "checksum": record.checksum, "unreadable": record.unreadable}


def _write(file: Any, data: bytes, offset: int) -> None:
    """Write all of `data`; through the file, since a full disk under a memory map would be a fatal signal."""
    file.seek(offset)
    while data:
        data = data[file.write(data) :]


@contextlib.contextmanager
def _locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock that the system releases when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two runs that start together both compute the file, with equal values
        yield
        return
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
