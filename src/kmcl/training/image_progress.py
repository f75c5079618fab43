"""Progress over images: a bar with the time left in a terminal, otherwise a line now and then."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

SECONDS_BETWEEN_LINES = 30.0


class ImageProgress:
    """Prints nothing until it is started or has to wait for another process."""

    def __init__(self, console: Console, what: str, num_images: int) -> None:
        self._console = console
        self._what = what
        self._num_images = num_images
        self._total = self._done = 0
        self._bar: Progress | None = None
        self._started = self._told = 0.0

    def __enter__(self) -> ImageProgress:
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
            self._print(f"{self._what}: {self._done} images in {seconds:.1f} s ({rate:.0f} a second)")

    def wait_for_another(self) -> None:
        self._print(f"{self._what}: another process computes them; waiting for it")

    def decoded(self, num_done: int, num_images: int) -> None:
        """Callback of the image cache, which decodes all images before the first is used."""
        now = time.perf_counter()
        self._told = self._told or now
        if num_done < num_images and now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            self._print(f"{self._what}: {num_done} of {num_images} images decoded")

    def start(self, num_images: int) -> None:
        """Start the bar: `num_images` are to be processed, at most all."""
        self._total = min(num_images, self._num_images)
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

    def advance(self, num_images: int) -> None:
        self._done += num_images
        if self._bar is not None and self._console.is_terminal:
            self._bar.update(self._bar.task_ids[0], completed=self._done)
            return
        now = time.perf_counter()
        if now - self._told >= SECONDS_BETWEEN_LINES:
            self._told = now
            left = (now - self._started) / self._done * max(0, self._total - self._done)
            self._print(f"{self._what}: {self._done} of {self._total} images, about {left:.0f} s left")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)
