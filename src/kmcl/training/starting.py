"""The start of a run: settings that hold in any working directory, and no folder where the start fails."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from kmcl.data.readers.registry import READERS
from kmcl.data.spec import DatasetSpec, parse_dataset_spec, short_name
from kmcl.errors import InputError
from kmcl.runs.dataset import IN_MEMORY
from kmcl.runs.folder import TABLE_FILE, RunFolder
from kmcl.runs.launcher import find_launched, is_first_process
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.atomic import WriteError
from kmcl.storage.s3 import s3_location
from kmcl.training.accelerators import check_accelerator
from kmcl.training.sharding import check_sharding
from kmcl.training.tracking import check_tracking

FOLDER_VARIABLE = "KMCL_RUN_FOLDER"
"""The folder of the run, for the processes that a distributed run starts on this machine."""


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


def check_machine(settings: TrainingSettings) -> None:
    """Refuse an accelerator, tracker or strategy that is not there, before anything is computed."""
    check_accelerator(settings.machine.accelerator, settings.machine.devices)
    check_tracking(settings)
    check_sharding(settings)


def absolute_paths(settings: TrainingSettings) -> dict[str, Any]:
    """Absolute paths of the data, of their cache and of a file of weights, as changes of the settings."""
    changes: dict[str, Any] = {"data": _absolute_spec(settings.data.spec)}
    if settings.data.cache_dir is not None:
        changes["cache_dir"] = _absolute(settings.data.cache_dir)
    weights = settings.encoder.weights
    if weights is not None and Path(weights).is_file():
        changes["weights"] = _absolute(Path(weights))
    return changes


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


def _absolute_spec(spec: str) -> str:
    if spec.startswith(IN_MEMORY):
        return spec
    found = parse_dataset_spec(spec, READERS)
    if found.kind == "hf" and found.location is not None and not os.path.exists(found.location):
        return str(found)  # a name of the hub
    if found.location is not None and s3_location(found.location) is not None:
        return str(found)
    return str(DatasetSpec(found.kind, found.location and Path(_absolute(found.location))))


def _absolute(path: Path) -> str:
    """Without resolving links, which a user may have set for this purpose."""
    return os.path.abspath(path)


def _remove_start(run: RunFolder) -> None:
    """The files of a start, and the folder if nothing else is in it: never a file of the user's."""
    for file in (run.plan_file, run.settings_file, run.budget_file, run.environment_file, run.epochs_file):
        file.unlink(missing_ok=True)
    for folder in (run.path / "logs", run.checkpoint.parent, run.model):
        shutil.rmtree(folder, ignore_errors=True)
    if run.path.is_dir() and not any(run.path.iterdir()):
        run.path.rmdir()
