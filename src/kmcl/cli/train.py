"""`kmcl train`: from a dataset to a model, its metrics and everything needed to repeat it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Optional

import typer

from kmcl.cli.data_arguments import OptionArgument, parse_dataset_options
from kmcl.cli.interruption import INTERRUPTED, TERMINATED, exiting_on_sigterm, leave_at_once
from kmcl.cli.settings_flags import with_settings_flags
from kmcl.errors import InputError
from kmcl.runs.folder import RunFolder
from kmcl.runs.launcher import is_first_process, is_restart
from kmcl.runs.resolution import PRESETS, read_given, shown_settings

if TYPE_CHECKING:
    from rich.console import Console

    from kmcl.training.plan import Plan


def train_command(
    data: Annotated[
        Optional[str],  # noqa: UP045
        typer.Argument(
            metavar="DATA", help="Dataset spec: digits, table:labels.csv, folder:DIR, coco:FILE.json, ..."
        ),
    ] = None,
    preset: Annotated[str, typer.Option(help=f"Starting point: {', '.join(PRESETS)}.")] = "default",
    config: Annotated[Optional[Path], typer.Option(help="YAML file of settings, over the preset.")] = None,  # noqa: UP045
    output: Annotated[
        Path | None,
        typer.Option(help="Folder of the run.", show_default="runs/DATA-METHOD-seedN-DATE-TIME"),
    ] = None,
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
        devices, nodes = flags.pop("devices"), flags.pop("nodes")
        changed = [name for name, value in flags.items() if value is not None]
        if data or config or output or option or changed:
            raise InputError(
                "--resume continues a run with the settings it was started with; give nothing else but "
                "--devices and --nodes"
            )
        _run(console, resume, None, devices=devices, nodes=nodes)
        return
    given = read_given(data, preset, config, {**flags, "data_options": parse_dataset_options(option) or None})
    if show_settings:
        typer.echo(shown_settings(given), nl=False)
        return

    from kmcl.runs.folder import choose_folder
    from kmcl.training.machine import ThisMachine
    from kmcl.training.plan import make_plan, print_header

    folder = choose_folder(output, given.checked)
    run = RunFolder(folder)
    if run.is_begun and is_restart(finished=run.metrics_file.is_file()):
        if is_first_process():
            typer.echo(f"{folder}: continues, with the settings it was started with")
        _run(console, folder, None)
        return
    if is_first_process():
        run.refuse_existing()
    with console.status("measuring this machine ..."):
        plan = make_plan(given, ThisMachine.of(given.checked))
    print_header(console, plan, folder)
    _run(console, folder, plan)


def _run(
    console: Console,
    folder: Path,
    plan: Plan | None,
    devices: int | None = None,
    nodes: int | None = None,
) -> None:
    """Train by the plan, or continue the run where there is none, with other `devices` and `nodes`."""
    from kmcl.data.loading import LostWorkerError
    from kmcl.reports.run_summary import print_run_summary
    from kmcl.storage.atomic import WriteError
    from kmcl.training.pipeline import resume, train
    from kmcl.training.processes import LostProcessError
    from kmcl.training.states import RunIO
    from kmcl.training.task import NonFiniteLossError

    def leave_lost(error: LostProcessError) -> NoReturn:
        typer.echo(f"kmcl: {error}", err=True)
        _say_how_to_continue(folder)
        leave_at_once(1)  # ending gloo's threads in order would wait for the lost process

    io = RunIO(console, calibrates_if_interrupted=True, on_lost_process=leave_lost)
    try:
        with exiting_on_sigterm():
            if plan is None:
                metrics = resume(folder, io, devices=devices, nodes=nodes)
            else:
                metrics = train(plan, folder, io)
    except (NonFiniteLossError, WriteError, LostWorkerError) as error:
        typer.echo(f"kmcl: {error}", err=True)
        _say_how_to_continue(folder)
        raise typer.Exit(1) from error
    except LostProcessError as error:
        leave_lost(error)
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns Ctrl-C into an exit
        _say_how_to_continue(folder)
        terminated = isinstance(stop, SystemExit) and stop.code == TERMINATED
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from stop
    if metrics:
        print_run_summary(console, folder, metrics)


def _say_how_to_continue(folder: Path) -> None:
    if not RunFolder(folder).is_begun:
        return  # nothing was begun
    checkpoint = folder / "checkpoints" / "last.ckpt"
    if checkpoint.is_file():
        typer.echo(
            f"The last finished epoch is in {checkpoint}; resume with: kmcl train --resume {folder}", err=True
        )
    else:
        typer.echo(f"No epoch was finished; start again with: kmcl train --resume {folder}", err=True)
    if (folder / "model" / "model.json").is_file():
        typer.echo(f"The best model so far can be used: kmcl predict {folder} IMAGES", err=True)


train = with_settings_flags(train_command)
