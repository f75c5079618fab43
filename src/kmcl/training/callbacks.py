"""What Lightning calls during training: epochs.csv, checkpoints, progress; and what goes wrong with logs."""

from __future__ import annotations

import csv
import io
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from kmcl.durations import spell_duration
from kmcl.errors import InputError
from kmcl.storage.atomic import FULL, WriteError, write_text, write_with
from kmcl.training.lightning import Callback, Checkpoint, LightningModule, TorchCheckpointIO, Trainer
from kmcl.training.task import ClassificationTask, ends_section


class EpochHistory(Callback):
    """Keeps a row of metrics per epoch, in the checkpoint and in a CSV file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        self._started = 0.0

    def state_dict(self) -> dict[str, Any]:
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.rows = list(state_dict["rows"])

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.perf_counter()  # of an epoch that is continued, only the rest is timed

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.perf_counter()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = {name: float(value) for name, value in sorted(trainer.callback_metrics.items())}
        row = {
            "epoch": trainer.current_epoch + 1,
            "seconds": time.perf_counter() - self._started,
            "learning_rate": trainer.optimizers[0].param_groups[0]["lr"],
        }
        self.rows = [*self.rows[: trainer.current_epoch], row | metrics]
        if trainer.is_global_zero:
            text = io.StringIO()
            writer = csv.DictWriter(
                text, fieldnames=list(dict.fromkeys(key for row in self.rows for key in row))
            )
            writer.writeheader()
            writer.writerows(self.rows)
            write_text(self.path, text.getvalue())


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


class TrainingProgress(Callback):
    """Prints to `console`; only the lines where that is not a terminal."""

    def __init__(self, console: Console, history: EpochHistory) -> None:
        self.console = console
        self.history = history
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        epochs, batches = int(trainer.max_epochs or 0), int(trainer.num_training_batches)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
            transient=True,
        )
        done = trainer.current_epoch * batches
        self._task = self._bar.add_task("training", total=epochs * batches, completed=done, status="")
        self._bar.start()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self._bar is not None:
            description = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}"
            self._bar.update(self._task, advance=1, description=description)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._bar is None:
            return
        row = self.history.rows[-1]
        parts = [
            f"epoch {trainer.current_epoch + 1:>3}/{trainer.max_epochs}",
            f"loss {row['train/loss']:.4f}",
        ]
        for name, of in (("head's val mAP / AUC", "model"), ("of its average", "average")):
            if f"val/map_{of}" in row:
                parts.append(f"{name} {100 * row[f'val/map_{of}']:.2f} / {100 * row[f'val/auc_{of}']:.2f}")
        if isinstance(pl_module, ClassificationTask) and pl_module.best is not None:
            parts.append(f"kept epoch {pl_module.best.epoch + 1}")
        if "val/map_best" in row:
            self._bar.update(self._task, status=f"head's val mAP {100 * row['val/map_best']:.2f}")
        left = sum(r["seconds"] for r in self.history.rows) / len(self.history.rows)
        left *= int(trainer.max_epochs or 0) - trainer.current_epoch - 1
        parts.append(f"{row['seconds']:.1f} s, about {spell_duration(left)} left")
        self._bar.console.print("   ".join(parts), highlight=False, soft_wrap=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


@contextmanager
def explaining_refused_logs(logs: Path) -> Iterator[None]:
    """Raise WriteError where the log cannot be written, or what could not be written before it.

    TensorBoard writes in a thread of its own, which prints its traceback; the error is raised again in the
    main thread, at the next write of the log. That may be the one with which Lightning ends a run that fails.

    Raise KeyboardInterrupt where it came while Lightning closed the log: Lightning then closes it once more,
    which TensorBoard refuses.
    """
    hook = threading.excepthook

    def print_others(thread: threading.ExceptHookArgs) -> None:
        if not isinstance(thread.exc_value, OSError):
            hook(thread)

    threading.excepthook = print_others
    try:
        yield
    except WriteError:
        raise
    except Exception as error:
        chain = _with_contexts(error)
        refusal = _find_refusal(chain)
        if refusal is not None:
            raise refusal if isinstance(refusal, WriteError) else WriteError(logs, refusal) from error
        if any(isinstance(one, KeyboardInterrupt) for one in chain):
            raise KeyboardInterrupt from error
        raise
    finally:
        threading.excepthook = hook


def _with_contexts(error: BaseException) -> list[BaseException]:
    """The error, and those during whose handling it was raised."""
    chain = [error]
    while (earlier := chain[-1].__context__) is not None:
        chain.append(earlier)
    return chain


def _find_refusal(chain: list[BaseException]) -> OSError | None:
    """The WriteError among these errors, else the full disk.

    Lightning reports a log that cannot be written as a value that it cannot log.
    """
    found = [one for one in chain if isinstance(one, OSError)]
    written = [one for one in found if isinstance(one, WriteError)]
    return next(iter([*written, *(one for one in found if one.errno in FULL)]), None)
