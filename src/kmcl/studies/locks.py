"""Locks that a process holds as long as it lives, so that no two train the same member.

They are POSIX record locks: the system takes them back however the process ends, children do not inherit
them, and they work between machines that share a file system with locking (NFS 4).
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path


def take(path: Path) -> int | None:
    """Lock the file for this process; None where another process has it. Closing what is returned frees it.

    The system frees it too when this process closes the file by any other way it has it open.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sign(descriptor: int) -> None:
    """Write into a lock that was taken who has it."""
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def signed_by(path: Path) -> int | None:
    """The process that signed the lock last."""
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def is_taken(path: Path) -> bool:
    """Whether another process has the lock."""
    descriptor = take(path)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Wait for the lock and hold it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class HeldLock:
    """The same lock for libraries that ask for one with `acquire` and `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = ExitStack()

    def acquire(self) -> bool:
        self._stack.enter_context(held(self._path))
        return True

    def release(self) -> None:
        self._stack.close()
