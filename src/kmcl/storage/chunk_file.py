"""An array in a file, computed in chunks, checked by checksums, resumed after an interruption.

`NAME.SUFFIX` holds the rows one after the other and nothing else, so each can be read alone.
`NAME.chunks`, the journal, has JSON lines: first the layout of the rows and what they are, then for each
chunk its checksum and which of its images could not be read. Until every chunk is there the rows are in
`NAME.SUFFIX.partial`. A chunk counts only if its bytes have the checksum in the journal, so whatever
interrupts the work (Ctrl-C, kill -9, a full disk), the next process computes what is missing or damaged and
no more. A lock, `NAME.lock`, lets one process compute at a time; the others wait and find the work done.
`kmcl.storage.chunk_file` lets several processes compute a part each.

Two caches use it: decoded images (`kmcl.data.cache`) with one row per chunk, since a row is large and
costs a decoding, and features of frozen stages (`kmcl.features.store`) with one batch per chunk.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kmcl.storage.atomic import WriteError, write_text
from kmcl.storage.file_rows import FileRows, Rows
from kmcl.storage.locks import file_lock, locked, try_lock


class Chunk(NamedTuple):
    """Consecutive rows as they were computed.

    unreadable: row number in the file -> why its image could not be read. What such a row holds is not used.
    """

    rows: Rows
    unreadable: dict[int, str]


Compute = Callable[[Sequence[int]], Iterator[Chunk]]
"""Gets the first rows of the chunks that are needed and gives these chunks in that order."""


class _Record(NamedTuple):
    checksum: int
    unreadable: dict[int, str]


class ChunkFile:
    """One array of `num_rows` x `row_shape` in a file.

    path:       the file; what its name must tell apart (images, weights ...) is up to the caller.
    dtype:      of the rows, with byte order.
    chunk_rows: rows per checksum; what an interruption or a damaged byte costs.
    about:      what the rows are, written into the journal for people.
    """

    def __init__(
        self,
        path: Path,
        num_rows: int,
        row_shape: tuple[int, ...],
        *,
        dtype: str,
        chunk_rows: int,
        about: dict[str, Any],
    ) -> None:
        self.path = path
        self.num_rows = num_rows
        self.row_shape = row_shape
        self.chunk_rows = chunk_rows
        self.dtype = np.dtype(dtype)
        self._layout = {
            "num_rows": num_rows,
            "row_shape": list(row_shape),
            "dtype": dtype,
            "chunk_rows": chunk_rows,
        }
        self._about = about
        self._row_bytes = self.dtype.itemsize * int(np.prod(row_shape))
        self._partial = path.with_name(path.name + ".partial")
        self._journal = path.with_suffix(".chunks")

    @property
    def starts(self) -> range:
        """The first row of each chunk."""
        return range(0, self.num_rows, self.chunk_rows)

    @property
    def num_bytes(self) -> int:
        return self.num_rows * self._row_bytes

    @property
    def num_missing_bytes(self) -> int:
        """Disk space that completing the file may take, without reading what is there."""
        if self.path.exists():
            return 0
        with contextlib.suppress(OSError):
            blocks = getattr(self._partial.stat(), "st_blocks", 0)  # Windows does not tell
            return max(0, self.num_bytes - blocks * 512)
        return self.num_bytes

    def complete(
        self,
        compute: Compute,
        *,
        on_wait: Callable[[], None] | None = None,
        is_readable: Callable[[int], bool] = lambda row: False,
        keep_partial: bool = True,
    ) -> dict[int, str]:
        """Compute what is missing or damaged; returns row -> why its image is unreadable.

        on_wait:      called once if another process is at work on the file, before waiting for it.
        is_readable:  asked of each row recorded as unreadable; its chunk is computed again if it says yes.
        keep_partial: whether chunks that were computed stay for the next attempt when the disk refuses
                      (WriteError). They stay after every other interruption.
        """
        with self._locked(on_wait):
            records = self._usable(self.path, is_readable)
            if len(records) < len(self.starts):
                if self.path.exists():
                    os.replace(self.path, self._partial)
                records = self._usable(self._partial, is_readable)
                try:
                    self._fill(records, compute)
                except WriteError:
                    if not keep_partial:
                        self._partial.unlink(missing_ok=True)
                        self._journal.unlink(missing_ok=True)
                    raise
        return {row: why for record in records.values() for row, why in record.unreadable.items()}

    def some_rows(self, starts: Sequence[int], compute: Compute) -> tuple[Rows, dict[int, str]]:
        """The rows of the chunks that begin at `starts`, and why some are unreadable, as `complete` does.

        Computes those that are missing; the rest of the file stays as it is.
        """
        with self._locked():
            path, records = self.path, self._usable(self.path, lambda row: False)
            if any(start not in records for start in starts):
                if path.exists():
                    os.replace(path, self._partial)
                records = self._usable(self._partial, lambda row: False)
                self._fill(records, compute, starts)
                path = self.path if len(records) == len(self.starts) else self._partial
            wanted = [np.arange(start, min(start + self.chunk_rows, self.num_rows)) for start in starts]
            rows = FileRows(path, self.num_rows, self.row_shape, self.dtype).take(np.concatenate(wanted))
        unreadable = {row: why for start in starts for row, why in records[start].unreadable.items()}
        return rows, unreadable

    def rows(self) -> FileRows:
        """The rows of a complete file."""
        return FileRows(self.path, self.num_rows, self.row_shape, self.dtype)

    @contextlib.contextmanager
    def _locked(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            with self._explaining_refusal(self.num_missing_bytes):
                stack.enter_context(locked(self.path.with_suffix(".lock"), on_wait))
            yield

    @contextlib.contextmanager
    def _explaining_refusal(self, num_bytes: int) -> Iterator[None]:
        """Around writing, never around computing, whose errors are about other files."""
        try:
            yield
        except OSError as error:
            raise WriteError(self.path, error, num_bytes) from error

    def _fill(
        self, records: dict[int, _Record], compute: Compute, wanted: Sequence[int] | None = None
    ) -> None:
        """Compute the chunks (or those wanted) without a record and add their records; a complete file gets
        its final name.
        """
        self._write(records, compute, self.starts if wanted is None else wanted, self._journal)
        if len(records) == len(self.starts):
            os.replace(self._partial, self.path)

    def _write(
        self, records: dict[int, _Record], compute: Compute, wanted: Sequence[int], journal_file: Path
    ) -> None:
        """Compute the wanted chunks without a record; their records go to the journal and to `records`,
        which the journal begins with.
        """
        lines = [self._layout | {"about": self._about}]
        lines += [_line(start, record) for start, record in sorted(records.items())]
        missing = [start for start in wanted if start not in records]
        num_bytes = sum(self._chunk_bytes(start) for start in missing)
        with contextlib.ExitStack() as stack:
            with self._explaining_refusal(num_bytes):
                write_text(journal_file, "".join(json.dumps(line) + "\n" for line in lines))
                mode = "r+b" if self._partial.exists() else "w+b"
                file = stack.enter_context(self._partial.open(mode, buffering=0))
                journal = stack.enter_context(journal_file.open("ab", buffering=0))
                file.truncate(self.num_bytes)
            for start, chunk in zip(missing, compute(missing) if missing else (), strict=True):
                data = np.ascontiguousarray(chunk.rows, dtype=self.dtype).tobytes()
                expected = self._chunk_bytes(start)
                if len(data) != expected:
                    raise ValueError(f"chunk {start} has {len(data)} bytes instead of {expected}")
                record = _Record(zlib.crc32(data), chunk.unreadable)
                with self._explaining_refusal(num_bytes):
                    _write(file, data, start * self._row_bytes)
                    _append(journal, json.dumps(_line(start, record)) + "\n")
                records[start] = record
                num_bytes -= expected
            with self._explaining_refusal(num_bytes):
                os.fsync(file.fileno())
                os.fsync(journal.fileno())

    def _usable(self, path: Path, is_readable: Callable[[int], bool]) -> dict[int, _Record]:
        """The chunks of a file whose bytes are those that were written and that need no second attempt."""
        if not path.exists() or path.stat().st_size != self.num_bytes:
            return {}
        usable = {}
        with path.open("rb", buffering=0) as file:
            for start, record in sorted(self._recorded().items()):
                file.seek(start * self._row_bytes)
                is_whole = zlib.crc32(file.read(self._chunk_bytes(start))) == record.checksum
                if is_whole and not any(is_readable(row) for row in record.unreadable):
                    usable[start] = record
        return usable

    def _recorded(self) -> dict[int, _Record]:
        return self._read_journal(self._journal)

    def _read_journal(self, journal: Path) -> dict[int, _Record]:
        try:
            header, *lines = journal.read_text(encoding="utf-8").splitlines()
            found = json.loads(header)
            if any(found[name] != value for name, value in self._layout.items()):
                return {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        records = {}
        for line in lines:
            with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):  # cut off by a kill
                entry = json.loads(line)
                unreadable = {int(row): str(why) for row, why in entry.get("unreadable", {}).items()}
                if entry["first_row"] in self.starts:
                    records[entry["first_row"]] = _Record(entry["checksum"], unreadable)
        return records

    def _chunk_bytes(self, start: int) -> int:
        return (min(start + self.chunk_rows, self.num_rows) - start) * self._row_bytes


def _line(start: int, record: _Record) -> dict[str, Any]:
    line: dict[str, Any] = {"first_row": start, "checksum": record.checksum}
    return line | {"unreadable": record.unreadable} if record.unreadable else line


def _write(file: Any, data: bytes, offset: int) -> None:
    """Write all of `data`; through the file, since a full disk under a memory map would be a fatal signal."""
    file.seek(offset)
    while data:
        data = data[file.write(data) :]


def _append(journal: Any, line: str) -> None:
    """Unbuffered, so that a refused line is not tried again when the file is closed."""
    data = line.encode()
    while data:
        data = data[journal.write(data) :]


if TYPE_CHECKING:
    from filelock import BaseFileLock


class PartedChunkFile(ChunkFile):
    """A chunk file of which `complete_together` may be called by several processes at once."""

    def complete_together(
        self, compute: Compute, part: int, num_parts: int, *, on_wait: Callable[[], None] | None = None
    ) -> dict[int, str]:
        """Compute what is missing or damaged of a part, see to the other parts, and complete the file.

        part: from 0 on, another one in each process
        """
        if num_parts > 1:
            for number in range(num_parts):
                self._complete_part((part + number) % num_parts, num_parts, compute, on_wait)
        return self.complete(compute, on_wait=on_wait)

    def _complete_part(
        self, part: int, num_parts: int, compute: Compute, on_wait: Callable[[], None] | None
    ) -> None:
        journal = self.path.with_suffix(f".part-{part}-of-{num_parts}.chunks")
        wanted = self.starts[part::num_parts]
        with ExitStack() as stack:
            lock, records = self._begin_part(journal.with_suffix(".lock"), on_wait)
            stack.callback(lock.release)
            own = {start: record for start, record in records.items() if start in wanted}
            if len(own) < len(wanted):
                self._write(own, compute, wanted, journal)

    def _begin_part(
        self, path: Path, on_wait: Callable[[], None] | None
    ) -> tuple[BaseFileLock, dict[int, _Record]]:
        """Acquire the lock of a part; returns it and the usable chunks of the whole file.

        Locks of parts are acquired under the file's own, so that no part begins while the file is completed.
        """
        while True:
            with super()._locked(on_wait):
                lock = try_lock(path)
                if lock is not None:
                    records = self._usable(self.path, lambda row: False)
                    if len(records) < len(self.starts):
                        if self.path.exists():
                            os.replace(self.path, self._partial)
                        records = self._usable(self._partial, lambda row: False)
                    return lock, records
            if on_wait is not None:
                on_wait()
                on_wait = None
            with locked(path):
                pass

    @contextmanager
    def _locked(self, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
        """The file alone: no part is being computed in the block."""
        with super()._locked(on_wait), ExitStack() as stack:
            for path in sorted(self.path.parent.glob(f"{self.path.stem}.part-*.lock")):
                lock = file_lock(path)
                lock.acquire()
                stack.callback(lock.release)
            yield
            if self.path.exists():
                for journal in self._part_journals():
                    journal.unlink(missing_ok=True)

    def _recorded(self) -> dict[int, _Record]:
        records = super()._recorded()
        for journal in self._part_journals():
            records |= self._read_journal(journal)
        return records

    def _part_journals(self) -> list[Path]:
        return sorted(self.path.parent.glob(f"{self.path.stem}.part-*.chunks"))
