"""Atomic writes: whatever interrupts one, the target is the old file or the new one, never a part of it."""

from __future__ import annotations

import errno
import glob
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import UnsupportedOperation
from pathlib import Path
from typing import Any, BinaryIO

STALE_SECONDS = 24 * 3600
"""Age above which a temporary file is taken for one that a killed process left behind."""

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""What a full disk, a quota and a limit on the size of files give."""


_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{8}\.partial(\.\w+)?")


class WriteError(OSError):
    """A file could not be written; the message has its path, the reason and the space on its disk.

    The old file, where there was one, is intact.

    advice: what the user can do, at the end of the message
    """

    def __init__(
        self, path: Path, cause: OSError, num_bytes: int | None = None, *, advice: str | None = None
    ) -> None:
        super().__init__(cause.errno, cause.strerror or str(cause), str(path))
        self._needed = "" if num_bytes is None else f"{num_bytes:,} bytes needed, "
        self._free = "unknown"
        self.advice = advice
        with suppress(OSError):
            self._free = f"{free_bytes(path):,}"

    @property
    def is_full(self) -> bool:
        """Whether there is no room, as opposed to no permission or a damaged disk."""
        return self.errno in FULL

    def __str__(self) -> str:
        sentence = (
            f"{self.filename}: cannot be written: {self.strerror} ({self._needed}{self._free} bytes free)"
        )
        return sentence if self.advice is None else f"{sentence}; {self.advice}"


def free_bytes(path: Path) -> int:
    """Of the disk that a file is or would be on; its folder need not exist yet."""
    folder = path.parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def require_space(path: Path, num_bytes: int) -> None:
    """Raise a WriteError where a file of that size cannot fit, before it is begun."""
    if num_bytes > free_bytes(path):
        raise WriteError(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), num_bytes)


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path in the folder of `path`, to be written in the block; then it replaces `path`.

        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(content)

    If the block raises, the temporary file is removed and `path` stays as it was. If the disk refuses, that
    is a WriteError. The temporary name is random, so processes that write the same target at the same time do
    not disturb each other: the last one wins. It ends with the suffix of `path`, because some writers append
    or require one.

    durable: flush the content to the disk first, so that a power failure too leaves one of the two files.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(path, error) from error
    _remove_stale(path)
    try:
        yield temporary
        if durable:
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        # Not what the block has to say about other files.
        if isinstance(error, OSError) and error.filename in (None, str(temporary), temporary):
            raise WriteError(path, error) from error
        raise


def write_with(path: Path, write: Callable[[Any], object], *, durable: bool = False) -> None:
    """Let `write` fill an open binary file, which then replaces `path`.

    write: is called again to count the bytes if the disk refuses them, so it must give the same ones. Its
           own error for a refused write, such as torch's, is replaced by the WriteError.
    """
    recorder = _Recorder()
    try:
        with replacing(path, durable=durable) as temporary, temporary.open("wb") as file:
            recorder.file = file
            write(recorder)
    except Exception as error:
        cause = recorder.refusal or error.__cause__ if isinstance(error, WriteError) else recorder.refusal
        if not isinstance(cause, OSError):
            raise
        counter = _Recorder()
        with suppress(Exception):
            write(counter)
        raise WriteError(path, cause, counter.num_bytes) from error


class _Recorder:
    """A binary file that counts what is written and keeps a refusal; without a file it only counts.

    It has the methods that torch and zipfile ask of a file to write to; nothing reads it.
    """

    def __init__(self) -> None:
        self.file: BinaryIO | None = None
        self.num_bytes = 0
        self.refusal: OSError | None = None
        self._position = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._position += size
        self.num_bytes = max(self.num_bytes, self._position)
        if self.file is None:
            return size
        return int(self._try(self.file.write, data))

    def flush(self) -> None:
        if self.file is not None:
            self._try(self.file.flush)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self.num_bytes}[whence]
        self._position = start + offset
        return self._position if self.file is None else int(self._try(self.file.seek, offset, whence))

    def tell(self) -> int:
        return self._position

    def seekable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        raise UnsupportedOperation("read")

    def _try(self, method: Callable[..., Any], *arguments: object) -> Any:
        try:
            return method(*arguments)
        except OSError as error:
            self.refusal = error
            raise


def write_bytes(path: Path, content: bytes) -> None:
    write_with(path, lambda file: file.write(content))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with the line ends that `text` has, on every system."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON; raises ValueError for NaN and infinities, which JSON does not have."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def rename_folder(folder: Path, target: Path) -> None:
    """Give a folder another name, at once; OSError if there is one of that name with anything in it."""
    os.rename(folder, target)


def is_temporary(path: Path) -> bool:
    """Whether a file is one that `replacing` had not finished."""
    return _TEMPORARY.fullmatch(path.name) is not None


def _remove_stale(path: Path) -> None:
    """A process that is killed cannot remove its temporary file; the next write of the target does."""
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.partial*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > STALE_SECONDS:
                old.unlink()
