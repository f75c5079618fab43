"""The program in processes that are forked from one with everything imported: seconds less for each.

A process runs `kmcl.cli.app.main`, as `python -m kmcl` does, and is its own process for signals, files and
its status. What starting Python itself does is tested elsewhere.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from forked_processes import CONTEXT


class Program:
    """A running command; what it prints on stderr is kept in a file."""

    def __init__(self, errors: Path, *arguments: str) -> None:
        self._errors = errors
        self._process = CONTEXT.Process(target=_run, args=(str(errors), arguments))
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.is_alive()

    @property
    def errors(self) -> str:
        return self._errors.read_text() if self._errors.exists() else ""

    def send_signal(self, sign: signal.Signals) -> None:
        os.kill(self.pid, sign)

    def wait(self, seconds: float = 300) -> int:
        """Its status, negative where a signal ended it."""
        self._process.join(seconds)
        assert self._process.exitcode is not None, f"still running after {seconds} s"
        return self._process.exitcode


def _run(errors: str, arguments: tuple[str, ...]) -> None:
    for stream, target in ((1, os.devnull), (2, errors)):
        os.dup2(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = ["kmcl", *arguments]
    from kmcl.cli.app import main

    main()
