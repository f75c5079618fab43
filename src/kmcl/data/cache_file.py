"""The file of a disk cache: pixel rows, then one checksum per row, complete once it has its final name.

Layout: num_images rows of size * size * 3 bytes, then num_images little-endian uint32 checksums. A checksum
of 0 means that the row is not there yet, 1 that its image cannot be read. While rows are missing the file is
named `*.partial`; when all are there it is flushed to the disk and renamed, which is atomic. Whatever
interrupts the filling (Ctrl-C, kill -9, power), the next run finds either a complete file or a partial one,
checks every row against its checksum, and decodes only what is missing or damaged. A lock lets one process
fill at a time; the others wait and find the work done.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from kmcl.cores import available_cores
from kmcl.data.dataset import ImageStore
from kmcl.data.decoding import Progress, decode_many
from kmcl.errors import InputError

IntArray = npt.NDArray[np.int64]

# Part of the key: raise it when decoding or resizing changes what the pixels are.
CACHE_VERSION = 1

MISSING, UNREADABLE = 0, 1
NUM_SAMPLED_IMAGES = 8


def content_key(store: ImageStore, size: int) -> str:
    """A name for these images at this size that changes when the images do.

    It covers all names, the size and time of those that are files, and the pixels of a few images spread over
    the store, which tell apart stores whose images are no files (a generated set with another seed).
    """
    digest = hashlib.sha256(f"{CACHE_VERSION} {size} {len(store)}".encode())
    for index in range(len(store)):
        name = store.name(index)
        digest.update(f"\0{name}".encode())
        with contextlib.suppress(OSError, ValueError):
            state = os.stat(name)
            digest.update(f"\0{state.st_size} {state.st_mtime_ns}".encode())
    sampled = sorted({int(i) for i in np.linspace(0, len(store) - 1, min(NUM_SAMPLED_IMAGES, len(store)))})
    for outcome in decode_many(store, sampled, size, num_threads=1):
        digest.update(outcome.encode() if isinstance(outcome, str) else outcome.tobytes())
    return digest.hexdigest()[:32]


def checksum(row: bytes | memoryview) -> int:
    """CRC-32, moved off the two values that have a meaning of their own."""
    value = zlib.crc32(row)
    return value if value > UNREADABLE else value + 2


class CacheFile:
    """One cache file: find out what is missing, fill it, give it its final name."""

    def __init__(self, path: Path, num_images: int, size: int) -> None:
        self.path = path
        self._num_images, self._size = num_images, size
        self._row_bytes = size * size * 3
        self._partial = path.with_name(path.name + ".partial")

    @property
    def _num_bytes(self) -> int:
        return self._num_images * (self._row_bytes + 4)

    def complete(
        self, store: ImageStore, *, skip_bad_images: bool, on_progress: Progress | None = None
    ) -> dict[int, str]:
        """Make the file complete and return what is wrong with each image that cannot be read.

        Raises OSError when the disk refuses, and removes the partial file: it must not hold the last bytes
        of a full disk. Raises InputError for an unreadable image unless `skip_bad_images`.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.with_name(self.path.name + ".lock")):
            todo, unreadable = self._inspect(self.path)
            problems = self._describe(store, unreadable, skip_bad_images)
            if len(todo) == 0 and len(problems) == len(unreadable):
                return problems
            if self.path.exists():
                os.replace(self.path, self._partial)
            todo, unreadable = self._inspect(self._partial)
            return self._fill(store, np.union1d(todo, unreadable), skip_bad_images, on_progress)

    def _describe(self, store: ImageStore, unreadable: IntArray, skip_bad_images: bool) -> dict[int, str]:
        """Why the images marked unreadable are so, by trying again: messages are not kept in the file."""
        problems: dict[int, str] = {}
        for index in unreadable.tolist():
            for outcome in decode_many(store, [index], self._size, num_threads=1):
                if isinstance(outcome, str):
                    problems[index] = outcome
                    if not skip_bad_images:
                        raise InputError(outcome)
        return problems

    def _fill(
        self, store: ImageStore, todo: IntArray, skip_bad_images: bool, on_progress: Progress | None
    ) -> dict[int, str]:
        self._require_space(len(todo))
        problems: dict[int, str] = {}
        try:
            with self._partial.open("r+b" if self._partial.exists() else "w+b", buffering=0) as file:
                file.truncate(self._num_bytes)
                outcomes = decode_many(store, todo.tolist(), self._size, available_cores())
                for count, (index, outcome) in enumerate(zip(todo.tolist(), outcomes, strict=True), start=1):
                    if isinstance(outcome, str):
                        problems[index] = outcome
                        if not skip_bad_images:
                            raise InputError(outcome)
                        self._mark(file, index, UNREADABLE)
                    else:
                        row = outcome.tobytes()
                        _write(file, row, index * self._row_bytes)
                        self._mark(file, index, checksum(row))
                    if on_progress is not None:
                        on_progress(self._num_images - len(todo) + count, self._num_images)
                os.fsync(file.fileno())
            os.replace(self._partial, self.path)
        except OSError:
            self._partial.unlink(missing_ok=True)
            raise
        return problems

    def _mark(self, file: BinaryIO, index: int, value: int) -> None:
        _write(file, value.to_bytes(4, "little"), self._num_images * self._row_bytes + 4 * index)

    def _inspect(self, path: Path) -> tuple[IntArray, IntArray]:
        """Rows that are missing or damaged, and rows marked unreadable."""
        every = np.arange(self._num_images)
        if not path.exists() or path.stat().st_size != self._num_bytes or self._num_images == 0:
            return every, every[:0]
        data = np.memmap(path, dtype=np.uint8, mode="r")
        end = self._num_images * self._row_bytes
        rows, sums = data[:end].reshape(self._num_images, -1), data[end:].view("<u4")
        damaged = [sums[i] != UNREADABLE and checksum(memoryview(rows[i])) != sums[i] for i in every]
        return every[np.array(damaged, dtype=np.bool_)], every[sums == UNREADABLE]

    def _require_space(self, num_rows: int) -> None:
        needed, free = num_rows * self._row_bytes, shutil.disk_usage(self.path.parent).free
        if needed > free:
            raise OSError(None, f"only {free / 1e9:.2f} GB are free on the disk of {self.path.parent}")


def _write(file: BinaryIO, data: bytes, offset: int) -> None:
    """Write all of `data`; through the file, since a full disk under a memory map would be a fatal signal."""
    file.seek(offset)
    while data:
        data = data[file.write(data) :]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock that the system releases when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # Windows: two runs that start together both fill the cache, with equal bytes
        yield
        return
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
