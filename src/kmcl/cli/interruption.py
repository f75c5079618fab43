"""Ending a long command after Ctrl-C or SIGTERM."""

from __future__ import annotations

import _thread
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn

INTERRUPTED = 130
"""The status of a command ended by Ctrl-C: 128 and the signal's number."""
TERMINATED = 143
"""The same for SIGTERM."""
SECONDS_TO_DELIVERY = 0.05


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


def keep_lost_interrupts() -> None:
    """Deliver Ctrl-C and SIGTERM once more where Python would print and forget them.

    That happens where a signal arrives in the callback of a weak reference or in a finaliser, of which
    importing a package calls many.
    """
    before = sys.unraisablehook

    def deliver(lost: sys.UnraisableHookArgs) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt):
            number = signal.SIGINT
        elif isinstance(lost.exc_value, SystemExit) and lost.exc_value.code == TERMINATED:
            number = signal.SIGTERM
        else:
            before(lost)
            return
        # Not at once: what is raised in this function would be lost as well.
        again = threading.Timer(SECONDS_TO_DELIVERY, _signal_main_thread, (number,))
        again.daemon = True
        again.start()

    sys.unraisablehook = deliver


def _signal_main_thread(number: signal.Signals) -> None:
    if sys.platform == "win32":
        _thread.interrupt_main(number)
    else:  # also wakes it where it sleeps
        signal.pthread_kill(threading.main_thread().ident or 0, number)


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
