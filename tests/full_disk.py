"""Disks without room: a limit on the size of files for this process, and a small file system."""

from __future__ import annotations

import resource
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def no_room(num_bytes: int = 0) -> Iterator[None]:
    """A real refusal: this process cannot write a file of more bytes than this."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, previous)


@contextmanager
def small_disk(folder: Path, num_bytes: int) -> Iterator[Callable[[int], None]]:
    """A file system of that size at `folder`, and a function that makes it larger; needs root's rights."""
    if shutil.which("mount") is None:
        pytest.skip("there is no mount command")
    folder.mkdir()
    size = f"size={num_bytes}"
    tried = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True)
    if tried.returncode:
        pytest.skip("no right to mount a file system")

    def enlarge(to_bytes: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={to_bytes}", folder], check=True)

    try:
        yield enlarge
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
