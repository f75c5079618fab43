"""Progress of training: a bar with the time left, and a line for each epoch."""

from __future__ import annotations

from typing import Any

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

from kmcl.training.history import EpochHistory
from kmcl.training.lightning import Callback, LightningModule, Trainer
from kmcl.training.task import ClassificationTask


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
        parts.append(f"{row['seconds']:.1f} s, about {_duration(left)} left")
        self._bar.console.print("   ".join(parts), highlight=False, soft_wrap=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
