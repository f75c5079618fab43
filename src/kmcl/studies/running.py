"""Runs the members of a study, several at a time, alongside any other process that runs the same study."""

from __future__ import annotations

import csv
import multiprocessing
import os
import signal
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kmcl.cores import available_cores
from kmcl.durations import spell_duration
from kmcl.storage.atomic import write_text
from kmcl.storage.locks import is_locked, read_owner
from kmcl.studies.member import BUSY, INTERRUPTED, run_in_process
from kmcl.studies.plan import Member

POLL_SECONDS = 0.5
INTERRUPT_SECONDS = 120
PRELOADED = (run_in_process.__module__,)
"""What members run, with all that it imports. The server ignores a name that is not there."""


def train_members(
    members: Sequence[Member], jobs: int, console: Console, ray: str | None = None
) -> dict[str, str]:
    """Train the unfinished members, here or on a Ray cluster, and show their progress.

    Returns the reasons of failures, by name.
    """
    with StudyProgress(console, members, jobs) as progress:
        if ray is None:
            return StudyRun(jobs, progress).run(members)
        from kmcl.studies.on_ray import RayStudyRun

        return RayStudyRun(ray, jobs, progress).run(members)


@dataclass
class _Running:
    member: Member
    process: BaseProcess
    slot: int
    announced: bool = False


@dataclass
class StudyRun:
    """Trains members in up to `jobs` processes of this machine.

    A member that another process trains is skipped; when that process dies, the member is taken over.
    `run` returns when every member is finished, here or elsewhere, or has failed.
    """

    jobs: int
    watcher: StudyProgress
    failures: dict[str, str] = field(default_factory=dict)
    _running: list[_Running] = field(default_factory=list)

    def run(self, members: Sequence[Member]) -> dict[str, str]:
        """Train the unfinished members; returns the reasons of failures, by name."""
        began = time.time()
        waiting = [member for member in members if not member.is_finished]
        try:
            while waiting or self._running:
                waiting = self._start(waiting, began)
                self._announce()
                running = [entry.member for entry in self._running]
                self.watcher.polled(running, waiting, len(waiting) if len(running) < self.jobs else 0)
                connection.wait([entry.process.sentinel for entry in self._running], POLL_SECONDS)
                if not self._running:
                    time.sleep(POLL_SECONDS)
                waiting += self._reap()
        except BaseException:
            self._interrupt()
            raise
        return self.failures

    def _start(self, waiting: Sequence[Member], began: float) -> list[Member]:
        """Start members in the free slots; returns those still waiting."""
        left = []
        for member in waiting:
            if member.is_finished:
                self.watcher.finished(member)
            elif (why := _failure_since(member.failure_file, began)) is not None:
                self._fail(member, why)
            elif len(self._running) >= self.jobs or is_locked(member.lock_file):
                left.append(member)
            else:
                slot = min(set(range(self.jobs)) - {entry.slot for entry in self._running})
                self._running.append(_Running(member, _launch(member, slot, self.jobs), slot))
        return left

    def _announce(self) -> None:
        """Report the members that this process has locked; another process may have been faster."""
        for entry in self._running:
            if not entry.announced and read_owner(entry.member.lock_file) == entry.process.pid:
                entry.announced = True
                self.watcher.started(entry.member)

    def _reap(self) -> list[Member]:
        """Collect the processes that ended; returns the members to retry."""
        again = []
        self._announce()
        for entry in [entry for entry in self._running if entry.process.exitcode is not None]:
            self._running.remove(entry)
            member, status = entry.member, entry.process.exitcode
            entry.process.close()
            if member.is_finished:
                self.watcher.finished(member)
            elif status == BUSY:
                again.append(member)
            elif status == INTERRUPTED:
                raise KeyboardInterrupt
            elif status is not None and status < 0:
                name = signal.Signals(-status).name
                self._fail(member, f"its process was ended by {name} (out of memory?)", write=True)
            else:
                self._fail(member, _failure_since(member.failure_file, 0) or f"exit status {status}")
        return again

    def _fail(self, member: Member, why: str, *, write: bool = False) -> None:
        if write:
            write_text(member.failure_file, why)
        self.failures[member.name] = why
        self.watcher.failed(member, why)

    def _interrupt(self) -> None:
        """Interrupt the members so that they can finish writing, as Ctrl-C does; then terminate them."""
        for entry in self._running:
            if entry.process.pid is not None and entry.process.is_alive():
                # Windows has no such signal: there it ends the process, and the last checkpoint stays.
                os.kill(entry.process.pid, signal.SIGINT)
        until = time.monotonic() + INTERRUPT_SECONDS
        for entry in self._running:
            entry.process.join(max(0.0, until - time.monotonic()))
            if entry.process.is_alive():
                entry.process.kill()
                entry.process.join()


def _launch(member: Member, slot: int, jobs: int) -> BaseProcess:
    gpus = _gpus()
    has_fork = "forkserver" in multiprocessing.get_all_start_methods()  # not on Windows
    context: Any = multiprocessing.get_context("forkserver" if has_fork else "spawn")
    if has_fork and not gpus:
        # Imported once for all members. A GPU that the first process has initialised cannot be used by forked
        # ones.
        context.set_forkserver_preload(["kmcl.studies.member"])
    neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    place = int(os.environ.get("LOCAL_RANK", 0)) * jobs + slot
    gpu = gpus[place % len(gpus)] if gpus else None
    arguments = (member, threads_per_process(jobs * neighbours), gpu)
    process: BaseProcess = context.Process(target=run_in_process, args=arguments, name=member.name)
    process.start()
    return process


def threads_per_process(num_processes: int) -> int:
    """An even share of the cores this process may use, or what OMP_NUM_THREADS says if that is less.

    torchrun sets that variable to 1 by default; under torchrun it is ignored.
    """
    share = max(1, available_cores() // num_processes)
    wish = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(wish)) if wish.isdigit() and "TORCHELASTIC_RUN_ID" not in os.environ else share


def _gpus() -> list[str]:
    """Names of the GPUs over which members are distributed, found without initialising the driver."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is not None:
        return [name for name in chosen.split(",") if name.strip()]
    return [str(number) for number, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))]


def _failure_since(file: Path, moment: float) -> str | None:
    """The error message of a failed process, if it failed after `moment`; older failures are retried."""
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_mtime >= moment else None
    except OSError:
        return None


class StudyProgress(AbstractContextManager["StudyProgress"]):
    """Prints a line when a member starts or ends; in a terminal also a live list of the running members."""

    def __init__(self, console: Console, members: Sequence[Member], jobs: int) -> None:
        self.console = console
        self.members = list(members)
        self.jobs = jobs
        self._live = Live(console=console, refresh_per_second=2, transient=True, auto_refresh=False)
        self._waited = False

    def __enter__(self) -> StudyProgress:
        done = sum(member.is_finished for member in self.members)
        if done:
            self._say(f"{done} of {len(self.members)} members are finished already")
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def started(self, member: Member) -> None:
        epochs = len(_epochs(member))
        again = f", resumes after epoch {epochs}" if epochs and member.run.checkpoint.is_file() else ""
        self._say(f"{member.variant}, seed {member.seed}: starts{again}")

    def finished(self, member: Member) -> None:
        rows = _epochs(member)
        parts = [f"{member.variant}, seed {member.seed}: finished"]
        if rows:
            parts.append(f"{spell_duration(sum(float(row['seconds']) for row in rows))} of training")
        best = member.run.read_metrics().get("best") if member.run.metrics_file.is_file() else None
        if best and best["val_map"] is not None:
            parts.append(f"val mAP {100 * best['val_map']:.2f}")
        done = sum(other.is_finished for other in self.members)
        parts.append(f"{done} of {len(self.members)} members")
        self._say("; ".join([*parts, *self._time_left()]))

    def failed(self, member: Member, why: str) -> None:
        self._say(f"{member.variant}, seed {member.seed}: failed: {why} (see {member.log_file})")

    def polled(self, running: Sequence[Member], waiting: Sequence[Member], elsewhere: int) -> None:
        if elsewhere and not running and not self._waited:
            self._waited = True
            self._say(f"waiting for {elsewhere} members that another process trains")
        if not self.console.is_terminal:
            return
        done = sum(member.is_finished for member in self.members)
        lines = ["; ".join([f"{done} of {len(self.members)} members", *self._time_left()])]
        for member in running:
            rows = _epochs(member)
            best = rows[-1].get("val/map_best") if rows else None
            reached = f", head's val mAP {100 * float(best):.2f}" if best else ""
            of = member.settings.optimisation.epochs
            lines.append(f"  {member.variant}, seed {member.seed}: epoch {len(rows) + 1} of {of}{reached}")
        self._live.update(Text("\n".join(lines)), refresh=True)

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)

    def _time_left(self) -> list[str]:
        """From the mean epoch time of each variant so far, or of all variants where one has none yet."""
        seconds: dict[str, list[float]] = {}
        left: dict[str, int] = {}
        for member in self.members:
            rows = [] if not member.run.epochs_file.is_file() else _epochs(member)
            seconds.setdefault(member.variant, []).extend(float(row["seconds"]) for row in rows)
            if not member.is_finished:
                rest = max(0, member.settings.optimisation.epochs - len(rows))
                left[member.variant] = left.get(member.variant, 0) + rest
        everything = [value for values in seconds.values() for value in values]
        if not everything or not any(left.values()):
            return []
        mean = sum(everything) / len(everything)
        total = 0.0
        for variant, epochs in left.items():
            own = seconds[variant]
            total += epochs * (sum(own) / len(own) if own else mean)
        return [f"about {spell_duration(total / self.jobs)} left"]


def _epochs(member: Member) -> list[dict[str, str]]:
    try:
        with member.run.epochs_file.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError:
        return []
