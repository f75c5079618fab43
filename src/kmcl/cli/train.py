"""`kmcl train`: from a dataset to a model, its metrics and everything needed to repeat it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from kmcl import api
from kmcl.cli.data_arguments import OptionArgument, parse_dataset_options
from kmcl.cli.interruption import INTERRUPTED, TERMINATED, exiting_on_sigterm, leave_at_once
from kmcl.cli.settings_flags import with_settings_flags
from kmcl.errors import InputError, LostProcessError, TrainingError
from kmcl.runs import PRESETS
from kmcl.runs.launcher import is_first_process
from kmcl.storage.atomic import WriteError


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
    options = parse_dataset_options(option)
    if show_settings:
        typer.echo(api.show_settings(data, preset=preset, config=config, options=options, **flags), nl=False)
        return
    if resume is not None:
        devices, nodes = flags.pop("devices"), flags.pop("nodes")
        changed = [name for name, value in flags.items() if value is not None]
        if data or config or output or option or changed:
            raise InputError(
                "--resume continues a run with the settings it was started with; give nothing else but "
                "--devices and --nodes"
            )
    with _ending_with_its_status():
        if resume is not None:
            run = api.resume(resume, devices=devices, nodes=nodes)
        else:
            run = api.train(data, output=output, preset=preset, config=config, options=options, **flags)
    if is_first_process():
        run.show()


@contextmanager
def _ending_with_its_status() -> Iterator[None]:
    """The statuses of a training that ends before its time, with how to go on."""
    try:
        with exiting_on_sigterm():
            yield
    except (TrainingError, WriteError) as error:
        typer.echo(f"kmcl: {error}", err=True)
        _echo_notes(error)
        if isinstance(error, LostProcessError):
            leave_at_once(1)  # ending gloo's threads in order would wait for the lost process
        raise typer.Exit(1) from error
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns Ctrl-C into an exit
        _echo_notes(stop)
        terminated = isinstance(stop, SystemExit) and stop.code == TERMINATED
        raise typer.Exit(TERMINATED if terminated else INTERRUPTED) from stop


def _echo_notes(stop: BaseException) -> None:
    for note in getattr(stop, "__notes__", ()):
        typer.echo(note, err=True)


train = with_settings_flags(train_command)
