"""epochs.csv: the metrics of each epoch, one row each, identical after any number of interruptions."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

from kmcl.storage.atomic import write_text
from kmcl.training.lightning import Callback, LightningModule, Trainer


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
