"""Progress of a report: the section in progress, a bar and the time left."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 5.0
LEAST_SHARE = 0.1
"""Done before the time left is estimated."""


class OnProgress(Protocol):
    """Called with the section in progress and the share of the whole report that is done, 0 to 1."""

    def __call__(self, section: str, done: float) -> object: ...


class SectionProgress:
    """Counts the sections of a report, and the parts of one, as shares of the whole."""

    def __init__(self, shares: Mapping[str, float], on_progress: OnProgress | None) -> None:
        """shares: how long each section takes, relative to the others."""
        total = sum(shares.values())
        self._shares = {name: share / total for name, share in shares.items()}
        self._on_progress = on_progress
        self._section = ""
        self._before = 0.0

    def start(self, section: str) -> None:
        """The section before is done, and this one begins."""
        self._before += self._shares.get(self._section, 0.0)
        self._section = section
        self.advance(0.0)

    def advance(self, done: float) -> None:
        """So much of the section is done, 0 to 1."""
        if self._on_progress is not None:
            self._on_progress(self._section, self._before + done * self._shares[self._section])


class ReportProgress:
    """Prints to a console: a bar in a terminal, elsewhere a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started = self._told = time.monotonic()
        self._bar = Progress(
            TextColumn("report: {task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=True),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task("reading", total=1.0)

    def __enter__(self) -> ReportProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def __call__(self, section: str, done: float) -> None:
        if self._console.is_terminal:
            self._bar.update(self._task, description=section, completed=done)
            return
        now = time.monotonic()
        if now - self._told < SECONDS_BETWEEN_LINES:
            return
        self._told = now
        left = (now - self._started) * (1 - done) / done if done >= LEAST_SHARE else None
        about = "" if left is None else f", about {left:.0f} s left"
        self._console.print(f"report: {section}, {100 * done:.0f} %{about}", highlight=False, soft_wrap=True)
