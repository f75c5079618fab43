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
from kmcl.storage.atomic import replacing
from kmcl.training.lightning import Checkpoint, LightningModule, TorchCheckpointIO, Trainer


class CheckpointWriteError(RuntimeError):
    """A checkpoint could not be written (usually a full disk); the previous one is intact."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Replaces the checkpoint only once the new one is on disk: a kill or a full disk leaves the old one."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        target = Path(path)
        try:
            with _ctrl_c_waits(), replacing(target, durable=True) as temporary, temporary.open("wb") as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:  # torch's own writer reports a full disk as RuntimeError
            raise CheckpointWriteError(f"{target}: the checkpoint could not be written: {error}") from error


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block: torch's writer would report it as a disk failure."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread only
        return
    pressed = []
    handler = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt


class LastCheckpoint(Checkpoint):
    """Saves the state of training at the end of every epoch, after validation."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self.path)


def check_checkpoint(path: Path) -> None:
    """Raise InputError for a checkpoint that cannot be read, before training starts."""
    try:
        torch.load(path, map_location="meta", weights_only=True)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: is no checkpoint to continue from: {reason}") from error
