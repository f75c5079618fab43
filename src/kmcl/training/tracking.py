"""Where the metrics of a run go besides `epochs.csv`: TensorBoard, MLflow, Weights & Biases.

All of them are Lightning's loggers. MLflow and W&B also get the settings at the start, and at the end the
results, a table of the labels, the model and the files that describe the run. The id of a run there is kept
in `logs/`, so that a run that is resumed goes on in the same place.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kmcl.errors import InputError
from kmcl.runs.folder import RunFolder
from kmcl.runs.launcher import is_first_process
from kmcl.runs.settings import TrainingSettings
from kmcl.training.lightning import Logger, TensorBoardLogger
from kmcl.training.mlflow_tracker import MlflowTracker
from kmcl.training.tracker import Say, Tracker
from kmcl.training.wandb_tracker import WandbTracker

TRACKERS: dict[str, type[Tracker]] = {"mlflow": MlflowTracker, "wandb": WandbTracker}


class Tracking:
    """The loggers of a run."""

    def __init__(self, run: RunFolder, settings: TrainingSettings, say: Say) -> None:
        names = settings.tracking.names
        self.trackers = [TRACKERS[name](run, settings, say) for name in names if name in TRACKERS]
        self.loggers: list[Logger] = [tracker.logger for tracker in self.trackers]
        if "tensorboard" in names:
            self.loggers.append(TensorBoardLogger(run.path, name="", version=run.logs.name))
        self._logs = run.logs

    def open(self) -> None:
        """Contact the services, before anything is computed."""
        if is_first_process():
            for tracker in self.trackers:
                tracker.open()

    def start(self, settings: TrainingSettings) -> None:
        """Training begins, with these settings."""
        if is_first_process():
            self._logs.mkdir(exist_ok=True)
            for tracker in self.trackers:
                tracker.log_settings(settings)

    def finish(self, metrics: Mapping[str, Any]) -> None:
        for tracker in self.trackers:
            tracker.finish(metrics)

    def close(self, *, failed: bool) -> None:
        if is_first_process():
            for tracker in self.trackers:
                tracker.close(failed=failed)


def check_tracking(settings: TrainingSettings) -> None:
    """InputError for a tracking service that cannot be used as it is, before anything is computed."""
    for name in settings.tracking.names:
        if name in TRACKERS and find_spec(name) is None:
            raise InputError(f"--log {name} needs the package {name}: pip install 'kmcl[{name}]'")
        if name == "mlflow" and not os.environ.get("MLFLOW_TRACKING_URI"):
            raise InputError(
                "--log mlflow needs a tracking server: set MLFLOW_TRACKING_URI, as in http://127.0.0.1:5000"
            )


def track_page(folder: Path, page: Path, say: Say) -> None:
    """Send a report of a run to where the run is tracked."""
    run = RunFolder(folder)
    settings = run.read_settings()
    for name in settings.tracking.names:
        if name in TRACKERS and find_spec(name) is not None and (run.logs / f"{name}.json").is_file():
            tracker = TRACKERS[name](run, settings, say)
            tracker.add_page(page)
            tracker.close(failed=False)
