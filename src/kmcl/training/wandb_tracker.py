"""A run in Weights & Biases, offline where WANDB_MODE says so."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings
from kmcl.training.lightning import WandbLogger
from kmcl.training.tracker import EXPERIMENT, Say, Tracker, label_tables, result_numbers


class WandbTracker(Tracker):
    name, title = "wandb", "Weights & Biases"

    def __init__(self, run: RunFolder, settings: TrainingSettings, say: Say) -> None:
        super().__init__(run, settings, say)
        import wandb

        self._logger = WandbLogger(
            name=run.path.name,
            project=settings.tracking.experiment or os.environ.get("WANDB_PROJECT", EXPERIMENT),
            save_dir=run.logs,
            id=self._known_id,
            settings=wandb.Settings(silent=True, console="off"),
        )

    @property
    def logger(self) -> WandbLogger:
        return self._logger

    def _open(self) -> None:
        self._run.logs.mkdir(exist_ok=True)
        _ = self._logger.experiment

    def _advice(self) -> str:
        return "; `wandb login` first, or set WANDB_MODE=offline"

    def _send_results(self, metrics: Mapping[str, Any]) -> None:
        import wandb

        experiment = self._logger.experiment
        experiment.summary.update(result_numbers(metrics))
        for split, table in label_tables(metrics).items():
            rows = [list(row.values()) for row in table]
            self._logger.log_table(f"labels-{split}", columns=list(table[0]), data=rows)
        artifact = wandb.Artifact(f"{_plain(self._run.path.name)}-model", type="model")
        artifact.add_dir(str(self._run.model))
        for path in self._files:
            artifact.add_file(str(path))
        experiment.log_artifact(artifact)

    def _send_page(self, page: Path) -> None:
        import wandb

        artifact = wandb.Artifact(f"{_plain(self._run.path.name)}-report", type="report")
        artifact.add_file(str(page))
        self._logger.experiment.log_artifact(artifact)

    def close(self, *, failed: bool) -> None:
        import wandb

        if wandb.run is not None:
            self.send(lambda: wandb.finish(exit_code=int(failed)))


def _plain(name: str) -> str:
    """W&B allows letters, digits, dashes, underscores and dots."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in name)
