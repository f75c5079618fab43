"""Locks between processes, by the library filelock (extra `train`).

A lock is taken from the operating system (flock on Linux and macOS, LockFile on Windows), which releases it
when its process ends, however it ends: no stale lock is left to clean up. The file itself stays; its
existence means nothing. Processes on several machines exclude each other if the file system they share
supports locks (NFS 4 does). On a file system without any locks filelock warns and falls back to a file
whose existence is the lock: a process killed there leaves it, and it must be deleted by hand.

A second lock on the same path waits for the first even within one process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kmcl.storage.atomic import write_text

if TYPE_CHECKING:
    from filelock import BaseFileLock


def file_lock(path: Path) -> BaseFileLock:
    """The lock of a path, not yet acquired. It is released when the object is deleted."""
    from filelock import FileLock  # kmcl without extras has no filelock and needs no locks

    path.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(path, thread_local=False)


def try_lock(path: Path) -> BaseFileLock | None:
    """Acquire the lock without waiting; None if it is held already. Keep the object to keep the lock."""
    from filelock import Timeout

    lock = file_lock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock


def is_locked(path: Path) -> bool:
    """Whether some process holds the lock at this moment."""
    lock = try_lock(path)
    if lock is None:
        return True
    lock.release()
    return False


@contextmanager
def locked(path: Path, on_wait: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the lock in the block; on_wait is called once if another holder has to be waited for."""
    lock = try_lock(path)
    if lock is None:
        if on_wait is not None:
            on_wait()
        lock = file_lock(path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def write_owner(path: Path) -> None:
    """Record that this process holds the lock of `path`.

    In a file beside it: on Windows nobody else can read a file that is locked.
    """
    write_text(_owner_file(path), f"{os.getpid()}\n")


def read_owner(path: Path) -> int | None:
    """The process id that was recorded last; whether that process still holds the lock is not known."""
    try:
        return int(_owner_file(path).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _owner_file(path: Path) -> Path:
    return path.with_suffix(".owner")
