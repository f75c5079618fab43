"""The states of a run, from one stage of `kmcl.training.pipeline` to the next."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from torch import nn

from kmcl.data import Dataset
from kmcl.features.run_data import RunData
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription
from kmcl.options.methods import MethodOptions
from kmcl.posthoc.interface import PosthocPart
from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings
from kmcl.training.lightning import Callback
from kmcl.training.processes import OnLost
from kmcl.training.task import Best
from kmcl.training.unknown_labels import UnknownLabels

FINISHING = 0.10, 8.0
"""Of the budget, and seconds, that post-hoc parts and evaluation take after training."""


@dataclass(frozen=True)
class RunIO:
    """What a run talks to.

    callbacks: of Lightning, besides our own
    encoder:   the user's own module, where the settings name its class
    on_lost_process: ends a process that waits for another which is no longer there
    """

    console: Console = field(default_factory=lambda: Console(quiet=True))
    callbacks: Sequence[Callback] = ()
    encoder: nn.Module | None = None
    on_lost_process: OnLost | None = None


@dataclass(frozen=True)
class Clock:
    """The time of a run: how much of its budget is used.

    began: in `time.monotonic()`; of a resumed run as if it had not been interrupted
    """

    budget: float
    began: float

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self.began

    @property
    def left_for_training(self) -> float:
        """Seconds until the passes after training must begin."""
        share, constant = FINISHING
        return self.budget * (1 - share) - constant - self.elapsed


class Decisions:
    """What a run has chosen so far, and how much of its budget is used: budget.json, until settings.yaml is
    complete.
    """

    def __init__(self, folder: RunFolder, clock: Clock | None) -> None:
        self._folder, self._clock = folder, clock
        self._chosen = folder.read_decisions()
        self._lock = threading.Lock()

    def write(self, chosen: Mapping[str, Any] | None = None) -> None:
        with self._lock:
            self._chosen |= chosen or {}
            if self._chosen or self._clock is not None:
                used = 0.0 if self._clock is None else self._clock.elapsed
                self._folder.write_decisions(self._chosen, used)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Write every second how much time is used: a run that is resumed after a kill -9 knows it."""
        stop = threading.Event()

        def keep() -> None:
            with suppress(OSError):  # of a full disk, what the run itself writes tells
                while not stop.wait(1):
                    self.write()

        thread = threading.Thread(target=keep, name="clock", daemon=True)
        if self._clock is not None:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            if self._clock is not None:
                thread.join()


@dataclass(frozen=True)
class Prepared:
    """A run that can be trained.

    settings: with the image size that the encoder takes; those that are undecided may still change
    options:  of the method, with those resolved that depend on the data
    parts:    the post-hoc parts, built from the encoder before training
    unknown:  what training makes of labels that are not annotated
    clock:    of a run that chooses settings itself within a budget
    """

    folder: RunFolder
    io: RunIO
    settings: TrainingSettings
    options: MethodOptions
    classifier: Classifier
    description: ModelDescription
    parts: Mapping[str, PosthocPart]
    data: RunData
    unknown: UnknownLabels
    clock: Clock | None
    decisions: Decisions
    device: str

    @property
    def dataset(self) -> Dataset:
        return self.data.dataset

    @property
    def console(self) -> Console:
        return self.io.console

    @property
    def undecided(self) -> tuple[str, ...]:
        return self.settings.recipe.to_choose

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, soft_wrap=True)


@dataclass(frozen=True)
class Fitted:
    """A run whose best weights are saved.

    best: of which epoch they are; None without a val split
    """

    run: Prepared
    best: Best | None
