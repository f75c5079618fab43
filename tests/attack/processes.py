"""The program as a process: started afresh, or as a copy of this process with everything imported.

A copy runs the same command as a fresh process and is killed in the same way; it saves the seconds of
importing torch, which would be most of a tiny training and take most of the kills.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Protocol


class Process(Protocol):
    """Its status is that of `subprocess`: negative where a signal ended it."""

    def poll(self) -> int | None: ...
    def wait(self, seconds: float) -> int | None:
        """Its status; None if it does not end in this time, while which it has the processor or sleeps."""

    def send_signal(self, sign: signal.Signals) -> None: ...


class Fresh:
    """A new interpreter."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "kmcl", *command],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
            )

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        return _wait(self, OwnTime(self._process.pid), seconds)

    def send_signal(self, sign: signal.Signals) -> None:
        self._process.send_signal(sign)


class Copy:
    """A fork of this process, in which no thread runs."""

    def __init__(self, command: list[str], environment: dict[str, str], output: Path) -> None:
        _import_everything()
        self._status: int | None = None
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if not self._pid:
            _run(command, environment, output)

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, seconds: float) -> int | None:
        return _wait(self, OwnTime(self._pid), seconds)

    def send_signal(self, sign: signal.Signals) -> None:
        if self.poll() is None:  # not yet waited for, so the number is still its own
            os.kill(self._pid, sign)


class OwnTime:
    """The time in which a process has the processor or sleeps; what it waits for others is not its own."""

    def __init__(self, pid: int) -> None:
        self._file = Path(f"/proc/{pid}/stat")
        self._spent, self._last = 0.0, time.monotonic()
        self._used = self._state()[1]

    def spent(self) -> float:
        """Seconds since the beginning."""
        now = time.monotonic()
        is_ready, used = self._state()
        passed = now - self._last
        self._spent += min(passed, used - self._used) if is_ready else passed
        self._last, self._used = now, used
        return self._spent

    def _state(self) -> tuple[bool, float]:
        """Whether it could run, and its seconds of processor time."""
        try:
            fields = self._file.read_text().rpartition(") ")[2].split()
        except OSError:  # it has ended, or there is no /proc
            return False, 0.0
        return fields[0] == "R", sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def _wait(process: Process, time_of: OwnTime, seconds: float) -> int | None:
    while (status := process.poll()) is None and time_of.spent() < seconds:
        time.sleep(0.02)
    return status


start_fresh = Fresh
start_prepared = Copy if sys.platform == "linux" else Fresh


def _import_everything() -> None:
    pass


def _run(command: list[str], environment: dict[str, str], output: Path) -> None:
    """Be the program: never returns."""
    status = 1
    try:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for stream in (1, 2):
            os.dup2(file, stream)
        os.environ.update(environment)
        sys.argv = ["kmcl", *command]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from kmcl.cli.app import main

        main()
        status = 0
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
