"""A run in MLflow, on the server that MLFLOW_TRACKING_URI names."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings
from kmcl.training.lightning import MLFlowLogger
from kmcl.training.tracker import EXPERIMENT, Say, Tracker, as_csv, first_line, label_tables, result_numbers

RETRIES = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "20"}
"""By its own defaults MLflow waits minutes for a server that does not answer."""


class MlflowTracker(Tracker):
    name, title = "mlflow", "MLflow"

    def __init__(self, run: RunFolder, settings: TrainingSettings, say: Say) -> None:
        super().__init__(run, settings, say)
        for variable, value in RETRIES.items():
            os.environ.setdefault(variable, value)
        self._logger = _ForgivingMlflowLogger(
            say,
            experiment_name=settings.tracking.experiment or EXPERIMENT,
            run_name=run.path.name,
            tracking_uri=os.environ.get("MLFLOW_TRACKING_URI"),
            run_id=self._known_id,
        )
        self._is_open = False

    @property
    def logger(self) -> _ForgivingMlflowLogger:
        return self._logger

    def _open(self) -> None:
        client = self._logger.experiment
        client.update_run(self._logger.run_id, status="RUNNING")
        self._is_open = True

    def _advice(self) -> str:
        return "; MLFLOW_TRACKING_URI names the tracking server"

    def _send_results(self, metrics: Mapping[str, Any]) -> None:
        from mlflow.entities import Metric

        client, run_id = self._logger.experiment, self._logger.run_id
        now = round(1000 * time.time())
        numbers = [Metric(name, value, now, 0) for name, value in result_numbers(metrics).items()]
        client.log_batch(run_id, metrics=numbers)
        for split, table in label_tables(metrics).items():
            client.log_text(run_id, as_csv(table), f"labels-{split}.csv")
        for path in self._files:
            client.log_artifact(run_id, str(path))
        client.log_artifacts(run_id, str(self._run.model), "model")
        client.set_terminated(run_id, "FINISHED")

    def _send_page(self, page: Path) -> None:
        self._logger.experiment.log_artifact(self._logger.run_id, str(page), "report")

    def close(self, *, failed: bool) -> None:
        """Lightning's logger has told the server how training ended; what comes before and after can fail."""
        if failed and self._is_open and not self._logger.lost:
            self.send(lambda: self._logger.experiment.set_terminated(self._logger.run_id, "FAILED"))


class _ForgivingMlflowLogger(MLFlowLogger):
    """A server that stops answering does not end a training: `epochs.csv` has the metrics too."""

    def __init__(self, say: Say, **options: Any) -> None:
        super().__init__(**options)
        self._say = say
        self.lost = False

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if self.lost:
            return
        try:
            super().log_metrics(metrics, step)
        except Exception as error:
            self.lost = True
            self._say(f"MLflow gets no more metrics of this run: {first_line(error)}; epochs.csv has them")

    def finalize(self, status: str = "success") -> None:
        if not self.lost:
            try:
                super().finalize(status)
            except Exception as error:
                self._say(f"MLflow was not told how training ended: {first_line(error)}")
