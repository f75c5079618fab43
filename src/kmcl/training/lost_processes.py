"""A training over several processes or machines, one of which is no longer there."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch.distributed

from kmcl.training.lightning import Callback, LightningModule, Trainer
from kmcl.training.process_watch import ProcessWatch

LOST = re.compile(r"closed by peer|reset by peer|broken pipe|timed? ?out|no route to host", re.IGNORECASE)


class LostProcessError(RuntimeError):
    """Another process of the run ended, or cannot be reached."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"another process of this training was lost ({reason}); its own messages, on its machine, say why"
        )


OnLost = Callable[[LostProcessError], None]
"""Ends the process; called in a thread, while the main thread may wait for the lost process."""


def print_and_leave(error: LostProcessError) -> None:
    sys.stderr.write(f"{error}\n")
    sys.stderr.flush()
    os._exit(1)


class WatchProcesses(Callback):
    """Watches the other processes of a training while it lasts."""

    def __init__(self, on_lost: OnLost) -> None:
        self._watch = ProcessWatch(lambda reason: on_lost(LostProcessError(reason)))

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.world_size > 1:
            self._watch.start()

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._watch.close(failed=False)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._watch.close(failed=True)


@contextmanager
def explaining_lost_processes() -> Iterator[None]:
    """Raise LostProcessError where an exchange fails because of another process. Also a decorator."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).strip()
        if not torch.distributed.is_initialized() or not LOST.search(message):
            raise
        if not isinstance(error, torch.distributed.DistError) and "gloo" not in message.lower():
            raise
        reason = re.sub(r"^\[.*?\]\s*", "", message.partition("\n")[0]).rstrip(".")
        raise LostProcessError(reason) from error
