"""Atomic writes: whatever interrupts one, the target is the old file or the new one, never a part of it."""

from __future__ import annotations

import glob
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

STALE_SECONDS = 24 * 3600
"""Age above which a temporary file is taken for one that a killed process left behind."""


@contextmanager
def replacing(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """A temporary path in the folder of `path`, to be written in the block; then it replaces `path`.

        with replacing(path) as temporary, temporary.open("wb") as file:
            file.write(content)

    If the block raises, the temporary file is removed and `path` stays as it was. The temporary name is
    random, so processes that write the same target at the same time do not disturb each other: the last one
    wins. It ends with the suffix of `path`, because some writers append or require one.

    durable: flush the content to the disk first, so that a power failure too leaves one of the two files.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial{path.suffix}")
    try:
        yield temporary
        if durable:
            with temporary.open("r+b") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_bytes(path: Path, content: bytes) -> None:
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with the line ends that `text` has, on every system."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: object) -> None:
    """Write indented JSON; raises ValueError for NaN and infinities, which JSON does not have."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def _remove_stale(path: Path) -> None:
    """A process that is killed cannot remove its temporary file; the next write of the target does."""
    for old in path.parent.glob(f".{glob.escape(path.name)}.*.partial*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > STALE_SECONDS:
                old.unlink()
