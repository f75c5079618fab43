"""Progress of long work: a bar with the time left in a terminal, otherwise a line now and then."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 30.0


def error_console(progress: bool) -> Console:
    """Standard error, for messages and progress; or nothing."""
    return Console(stderr=True, quiet=not progress)


def say(console: Console, sentence: str) -> None:
    """Print a sentence as it is: names of files in it are not wrapped, coloured or taken for markup."""
    console.print(sentence, soft_wrap=True, highlight=False, markup=False, emoji=False)


def counting_bar(console: Console, what: str) -> Progress:
    """A bar with the number that is done and the time left, in a terminal; elsewhere nothing is shown."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


class WorkProgress:
    """Prints nothing until it is started or has to wait for another process.

    most: units of work, of which `start` may say that fewer are to be done
    unit: what they are, for people
    """

    def __init__(self, console: Console, what: str, most: int, unit: str = "images") -> None:
        self._console = console
        self._what = what
        self._most = most
        self._unit = unit
        self._total = self._done = 0
        self._bar: Progress | None = None
        self._started = self._told = 0.0

    def __enter__(self) -> WorkProgress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is None:
            return
        self._bar.stop()
        if kind is None:
            seconds = time.perf_counter() - self._started
            rate = self._done / max(seconds, 1e-9)
            self._print(f"{self._what}: {self._done} {self._unit} in {seconds:.1f} s ({rate:.3g} a second)")

    def wait_for_another(self) -> None:
        self._print(f"{self._what}: another process computes them; waiting for it")

    def decoded(self, num_done: int, num_images: int) -> None:
        """Callback of the image cache, which decodes all images before the first is used."""
        now = time.perf_counter()
        self._told = self._told or now
        if num_done < num_images and now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            self._print(f"{self._what}: {num_done} of {num_images} images decoded")

    def start(self, total: int) -> None:
        """Start the bar: `total` units are to be done, at most all."""
        self._total = min(total, self._most)
        self._started = self._told = time.perf_counter()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._bar.add_task(self._what, total=self._total)
        self._bar.start()

    def advance(self, done: int = 1) -> None:
        """Some more units are done."""
        self._done += done
        if self._bar is not None and self._console.is_terminal:
            self._bar.update(self._bar.task_ids[0], completed=self._done)
            return
        now = time.perf_counter()
        if now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            left = (now - self._started) / self._done * max(0, self._total - self._done)
            self._print(f"{self._what}: {self._done} of {self._total} {self._unit}, about {left:.0f} s left")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)
