"""The folder of a run: everything needed to repeat, resume and evaluate it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kmcl.data.spec import short_name
from kmcl.errors import InputError
from kmcl.runs.launcher import find_launched, is_first_process
from kmcl.runs.resolution import read_settings, with_changes
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.atomic import WriteError, is_temporary, write_json, write_text

PACKAGES = ("kmcl", "torch", "torchvision", "timm", "pytorch-lightning", "numpy", "pillow", "scikit-learn")

TABLE_FILE = "data.csv"
"""Images and labels of a run or study whose data were given as a DataFrame, to open them again."""

FOLDER_VARIABLE = "KMCL_RUN_FOLDER"
"""The folder of the run, for the processes that a distributed run starts on this machine."""


@dataclass(frozen=True)
class RunFolder:
    """The files of a run.

    data.csv          images and labels, where they were given as a DataFrame
    plan.yaml         the settings as they were planned, with absolute paths, and what the run is to choose
    budget.json       what it has chosen and how much of its budget it has used, until settings.yaml is there
    settings.yaml     the complete settings
    environment.json  versions, command, git state, machine
    epochs.csv        one row per epoch: learning rate, each loss term, val mAP of model and average, seconds
    logs/             TensorBoard; the ids of the run in MLflow and W&B
    checkpoints/      last.ckpt, to resume from
    model/            the best weights on val, with labels, thresholds and temperatures
    predictions/      val.npz and test.npz; evaluation.json, what was measured of them
    metrics.json      the results; a run is finished when it exists
    """

    path: Path

    @property
    def plan_file(self) -> Path:
        return self.path / "plan.yaml"

    @property
    def settings_file(self) -> Path:
        return self.path / "settings.yaml"

    @property
    def budget_file(self) -> Path:
        return self.path / "budget.json"

    @property
    def environment_file(self) -> Path:
        return self.path / "environment.json"

    @property
    def epochs_file(self) -> Path:
        return self.path / "epochs.csv"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoints" / "last.ckpt"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.json"

    def predictions_file(self, split: str) -> Path:
        return self.path / "predictions" / f"{split}.npz"

    @property
    def evaluation_file(self) -> Path:
        return self.path / "predictions" / "evaluation.json"

    @property
    def is_begun(self) -> bool:
        return self.plan_file.is_file() or self.settings_file.is_file()

    def how_to_continue(self) -> list[str]:
        """What can be done with a run that has ended before its time."""
        if not self.is_begun:
            return []
        command = f"kmcl train --resume {self.path}"
        lines = [f"No epoch was finished; start again with: {command}"]
        if self.checkpoint.is_file():
            lines = [f"The last finished epoch is in {self.checkpoint}; resume with: {command}"]
        if (self.model / "model.json").is_file():
            lines.append(f"The best model so far can be used: kmcl predict {self.path} IMAGES")
        return lines

    def create(self, planned: TrainingSettings) -> None:
        """Create the folder of a new run; refuse one that is not empty."""
        self.refuse_existing(besides=TABLE_FILE)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_text(self.plan_file, planned.to_yaml())
            write_json(self.environment_file, describe_environment())
        except WriteError as error:
            if error.is_full:
                raise
            raise InputError(str(error)) from error
        except OSError as error:
            raise InputError(f"{self.path}: cannot be written: {error.strerror}") from error

    def write_settings(self, settings: TrainingSettings) -> None:
        write_text(self.settings_file, settings.to_yaml())

    def refuse_existing(self, besides: str | None = None) -> None:
        """Raise an InputError where there is something in the folder, `besides` a file of that name.

        What a killed process was about to write first does not count.
        """
        if not self.path.exists():
            return
        if not self.path.is_dir() or any(
            path.name != besides and not is_temporary(path) for path in self.path.iterdir()
        ):
            raise InputError(f"{self.path}: exists and is not empty; choose another --output, or --resume it")

    def read_settings(self) -> TrainingSettings:
        """The complete settings, or those that are planned and what the run has chosen of them so far."""
        file = self.settings_file if self.settings_file.is_file() else self.plan_file
        if not file.is_file():
            raise InputError(f"{self.path}: is no run folder: it has no {self.settings_file.name}")
        return with_changes(read_settings(file), self.read_decisions(), str(self.budget_file))

    def write_decisions(self, chosen: Mapping[str, Any], used_seconds: float) -> None:
        write_json(self.budget_file, {"used_seconds": round(used_seconds, 1), "chosen": chosen})

    def read_decisions(self) -> dict[str, Any]:
        """What the run has chosen so far, by flat names."""
        return dict(self._read_budget().get("chosen", {}))

    def used_seconds(self) -> float:
        """Of its budget."""
        return float(self._read_budget().get("used_seconds", 0))

    def _read_budget(self) -> dict[str, Any]:
        try:
            found = json.loads(self.budget_file.read_text(encoding="utf-8"))
            return {"used_seconds": float(found["used_seconds"]), "chosen": dict(found.get("chosen", {}))}
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError) as error:
            raise InputError(
                f"{self.budget_file}: has no used_seconds; remove it to begin the budget anew"
            ) from error

    def find_predictions(self, split: str) -> Path:
        """The file of val or test; InputError for what is no run folder, and a run that has none."""
        self.read_settings()
        file = self.predictions_file(split)
        if not file.is_file():
            raise InputError(f"{self.path}: has no predictions of {split} ({file}); is the run finished?")
        return file

    def read_metrics(self) -> dict[str, Any]:
        try:
            metrics: dict[str, Any] = json.loads(self.metrics_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise InputError(
                f"{self.path}: is not a finished run: it has no {self.metrics_file.name}; --resume it"
            ) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{self.metrics_file}: is not JSON: {error}") from error
        return metrics


def choose_folder(output: Path | None, settings: TrainingSettings) -> Path:
    """The folder of a new run: the one given, or one below `runs` with data, method, seed and time."""
    if output is not None:
        return output
    if not is_first_process() and FOLDER_VARIABLE in os.environ:
        return Path(os.environ[FOLDER_VARIABLE])
    launched = find_launched()
    if "WORLD_SIZE" in os.environ or (launched is not None and launched.num_processes > 1):
        raise InputError(
            "--output must be given where several processes start the same command (torchrun, SLURM)"
        )
    data, method = short_name(settings.data.spec), settings.method.name
    started = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = Path("runs") / f"{data}-{method}-seed{settings.optimisation.seed}-{started}"
    os.environ[FOLDER_VARIABLE] = str(folder)
    return folder


@contextmanager
def no_folder_if_start_fails(run: RunFolder) -> Iterator[None]:
    """Remove what a start has written where an error ends it before training, or a wrong input (an image that
    cannot be read) before the first epoch is finished. After a full disk the run stays, to be resumed."""
    run.refuse_existing(besides=TABLE_FILE)
    try:
        yield
    except Exception as error:
        is_full = isinstance(error, WriteError) and error.is_full
        if is_full and run.is_begun and run.environment_file.is_file():
            raise
        trains = run.logs.is_dir()
        if not trains or (isinstance(error, InputError) and not run.checkpoint.is_file()):
            _remove_start(run)
        raise


def _remove_start(run: RunFolder) -> None:
    """The files of a start, and the folder if nothing else is in it: never a file of the user's."""
    for file in (run.plan_file, run.settings_file, run.budget_file, run.environment_file, run.epochs_file):
        file.unlink(missing_ok=True)
    for folder in (run.path / "logs", run.checkpoint.parent, run.model):
        shutil.rmtree(folder, ignore_errors=True)
    if run.path.is_dir() and not any(run.path.iterdir()):
        run.path.rmdir()


def describe_environment() -> dict[str, Any]:
    """What the results of a run may depend on besides its settings."""
    return {
        "command": sys.argv,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        "git": _git_state(),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git_state() -> dict[str, Any] | None:
    """Commit of the folder the run was started in, and whether it had changes; None outside a checkout."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "changed": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
