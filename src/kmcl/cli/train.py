"""`kmcl train`: from a dataset to a model, its metrics and everything needed to repeat it."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from kmcl.cli.data import OptionArgument, parse_dataset_options
from kmcl.cli.interruption import INTERRUPTED
from kmcl.cli.settings_flags import with_settings_flags
from kmcl.errors import InputError
from kmcl.training.presets import PRESETS
from kmcl.training.resolution import resolve_settings
from kmcl.training.settings import TrainingSettings

if TYPE_CHECKING:
    from rich.console import Console

FOLDER_VARIABLE = "KMCL_RUN_FOLDER"
"""The run's folder, for the processes that a distributed run starts on this machine."""


def train_command(
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="DATA", help="Dataset spec: digits, table:labels.csv, voc2007:DIR, coco2014:DIR, ..."
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help=f"Starting point: {', '.join(PRESETS)}.")] = "default",
    config: Annotated[Optional[Path], typer.Option(help="YAML file of settings, over the preset.")] = None,  # noqa: UP045
    output: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/...")] = None,
    resume: Annotated[Optional[Path], typer.Option(metavar="RUN", help="Continue this run.")] = None,  # noqa: UP045
    option: OptionArgument = None,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Print the settings and stop.")
    ] = False,
    **flags: Any,
) -> None:
    """Train a model on DATA: settings from the preset, then --config, then flags."""
    from rich.console import Console

    console = Console()
    if resume is not None:
        given = [name for name, value in flags.items() if value is not None]
        if data or config or output or option or given:
            raise InputError(
                "--resume continues a run with the settings it was started with; give nothing else"
            )
        _run(console, resume, None)
        return
    options = parse_dataset_options(option)
    settings = resolve_settings(data, preset, config, {**flags, "data_options": options or None})
    if show_settings:
        typer.echo(settings.to_yaml(), nl=False)
        return
    _run(console, _choose_folder(output, settings), settings)


def _run(console: Console, folder: Path, settings: TrainingSettings | None) -> None:
    from kmcl.data.loading import LostWorkerError
    from kmcl.reports.metrics_table import print_metrics
    from kmcl.training.checkpoints import CheckpointWriteError
    from kmcl.training.task import NonFiniteLossError
    from kmcl.training.train import resume, train

    try:
        metrics = resume(folder, console) if settings is None else train(settings, folder, console)
    except (NonFiniteLossError, CheckpointWriteError, LostWorkerError) as error:
        typer.echo(f"kmcl: {error}", err=True)
        _say_how_to_continue(folder)
        raise typer.Exit(1) from error
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns Ctrl-C into an exit
        _say_how_to_continue(folder)
        raise typer.Exit(INTERRUPTED) from stop
    if metrics:
        print_metrics(console, {str(folder): metrics})
        console.print(f"\nrun folder: {folder}", soft_wrap=True)


def _say_how_to_continue(folder: Path) -> None:
    checkpoint = folder / "checkpoints" / "last.ckpt"
    if checkpoint.is_file():
        typer.echo(
            f"The last finished epoch is in {checkpoint}; resume with: kmcl train --resume {folder}", err=True
        )
    else:
        typer.echo(f"No epoch was finished; start again with: kmcl train --resume {folder}", err=True)


def _choose_folder(output: Path | None, settings: TrainingSettings) -> Path:
    if output is not None:
        return output
    if FOLDER_VARIABLE in os.environ:
        return Path(os.environ[FOLDER_VARIABLE])
    if "WORLD_SIZE" in os.environ:
        raise InputError(
            "--output must be given where several processes start the same command (torchrun, SLURM)"
        )
    spec = settings.data.spec
    data = Path(spec.split(":", 1)[-1]).stem or spec
    started = datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = Path("runs") / f"{data}-{settings.method.name}-seed{settings.optimisation.seed}-{started}"
    os.environ[FOLDER_VARIABLE] = str(folder)
    return folder


train = with_settings_flags(train_command)
