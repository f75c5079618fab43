"""A checkpoint at every epoch's end that survives whatever happens while it is written."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from kmcl.errors import InputError
from kmcl.training.lightning import Checkpoint, LightningModule, TorchCheckpointIO, Trainer


class CheckpointWriteError(RuntimeError):
    """A checkpoint could not be written (a full disk, as a rule); the one before it is whole."""


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the old checkpoint, then takes its place: a kill or a full disk leaves the old one."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        target = Path(path)
        partial = target.with_name(f".{target.name}.partial")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with _ctrl_c_waits():
                with partial.open("wb") as file:
                    torch.save(checkpoint, file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(partial, target)
        except (OSError, RuntimeError) as error:  # torch's own writer reports a full disk as RuntimeError
            partial.unlink(missing_ok=True)
            raise CheckpointWriteError(f"{target}: the checkpoint could not be written: {error}") from error


@contextmanager
def _ctrl_c_waits() -> Iterator[None]:
    """Hold Ctrl-C back until the end of the block: torch's writer takes it for a failure of the disk."""
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
    """Refuse a checkpoint that cannot be read, before anything is started with it."""
    try:
        torch.load(path, map_location="meta", weights_only=True)
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{path}: is no checkpoint to continue from: {reason}") from error
