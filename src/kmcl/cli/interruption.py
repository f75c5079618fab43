"""Ending a long command after Ctrl-C or SIGTERM."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

INTERRUPTED = 130
"""The status of a command ended by Ctrl-C: 128 and the signal's number."""
TERMINATED = 143
"""The same for SIGTERM."""


@contextmanager
def exiting_on_sigterm() -> Iterator[None]:
    """In the block SIGTERM raises SystemExit(TERMINATED), so that it ends a command as Ctrl-C does."""

    def leave(number: int, frame: object) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def leave_at_once(status: int) -> NoReturn:
    """End this process, and those it started, without Python's own clean-up.

    All results are on disk when this is called. Clean-up after an interrupted computation, including threads
    of libraries, takes seconds and has been seen to hang.
    """
    for child in multiprocessing.active_children():
        child.kill()
        child.join(1)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):  # its reader may have been stopped as well
            stream.flush()
    os._exit(status)
