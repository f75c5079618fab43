"""A checkpoint at the end of every epoch; an interrupted write leaves the previous one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kmcl.errors import InputError
from kmcl.storage.atomic import write_with
from kmcl.training.lightning import Checkpoint, LightningModule, TorchCheckpointIO, Trainer


class AtomicCheckpointIO(TorchCheckpointIO):
    """Replaces the checkpoint only once the new one is on disk: a kill or a full disk leaves the old one."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        with _signals_wait():
            write_with(Path(path), lambda file: torch.save(checkpoint, file), durable=True)


@contextmanager
def _signals_wait() -> Iterator[None]:
    """Defer Ctrl-C and SIGTERM to the end of the block: torch's writer would report a disk failure."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    received: list[int] = []
    handlers = {
        sign: signal.signal(sign, lambda number, _: received.append(number))
        for sign in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for sign, handler in handlers.items():
            signal.signal(sign, handler)
    for number in received:
        signal.raise_signal(number)


def ends_section(batch_index: int, steps: int | None, trainer: Trainer) -> bool:
    """Whether a checkpoint follows a batch inside an epoch.

    steps: of the optimiser between two of them; None for none
    """
    num_done = batch_index + 1
    if steps is None or num_done >= trainer.num_training_batches:
        return False
    return num_done % (steps * trainer.accumulate_grad_batches) == 0


class LastCheckpoint(Checkpoint):
    """Saves the state of training at the end of every epoch, after validation, and every so many steps."""

    def __init__(self, path: Path, steps: int | None = None) -> None:
        self.path, self.steps = path, steps

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if ends_section(batch_idx, self.steps, trainer):
            trainer.save_checkpoint(self.path)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self.path)


def check_checkpoint(path: Path) -> None:
    """Raise InputError for a checkpoint that training cannot continue from, before it starts."""
    try:
        best = torch.load(path, map_location="meta", weights_only=True).get("best")
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: is no checkpoint to continue from: {reason}") from error
    if best is not None and "val_auc" not in best:
        raise InputError(
            f"{path}: is of an earlier version, which chose epochs by another measure; start a new run"
        )
