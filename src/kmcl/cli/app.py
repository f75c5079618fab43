"""The program `kmcl`: its commands, and how errors are reported."""

from __future__ import annotations

import errno
import sys
import warnings
from importlib import import_module
from typing import Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from kmcl.cli.interruption import INTERRUPTED, TERMINATED, keep_lost_interrupts, leave_at_once
from kmcl.cli.missing_packages import explain_missing_package
from kmcl.cores import let_waiting_threads_sleep
from kmcl.errors import InputError, shorten
from kmcl.storage.atomic import WriteError
from kmcl.version import __version__


class Listed(NamedTuple):
    """A command in the list of all: `command` is the function or the group of commands in its module."""

    command: str
    summary: str


COMMANDS = {
    "train": Listed(
        "kmcl.cli.train:train", "Train a model on DATA: settings from the preset, then --config, then flags."
    ),
    "compare": Listed(
        "kmcl.cli.study:compare",
        "Train METHODS on DATA with every seed, and compare them with paired intervals.",
    ),
    "evaluate": Listed(
        "kmcl.cli.evaluate:evaluate",
        "Show the metrics of a run; with two runs, the paired difference of their mAP.",
    ),
    "predict": Listed(
        "kmcl.cli.predict:predict",
        "Predict the labels of images: probability with its 90 % interval, threshold and decision.",
    ),
    "report": Listed(
        "kmcl.cli.report:report",
        "Write a report of RUN: one HTML file for a browser, with its figures as SVG and PNG files.",
    ),
    "explain": Listed(
        "kmcl.cli.explain:explain",
        "Show which regions of an image support its predicted labels (Grad-CAM).",
    ),
    "export": Listed(
        "kmcl.cli.export:export",
        "Write a model to one ONNX file with its labels, preprocessing and thresholds, and check it.",
    ),
    "serve": Listed(
        "kmcl.cli.serve:serve", "Serve a model over HTTP: POST /v1/predict, and a page to try it at /."
    ),
    "monitor": Listed(
        "kmcl.cli.monitor:monitor",
        "Compare new predictions with those of val: unfamiliar images, features, label rates, probabilities.",
    ),
    "select": Listed(
        "kmcl.cli.select:select",
        "Choose the images to label next, and write them as a table, Label Studio tasks and a contact sheet.",
    ),
    "add-label": Listed(
        "kmcl.cli.add_label:add_label",
        "Give a trained model a new label from a few examples, without training it again.",
    ),
    "push": Listed(
        "kmcl.cli.push:push",
        "Publish a model: weights, description and a card with its data, metrics and limits.",
    ),
    "import-released": Listed(
        "kmcl.cli.import_released:import_released",
        "Convert the TResNet weights released by the authors of KMCL or ASL to a model folder.",
    ),
    "complexity": Listed(
        "kmcl.cli.complexity:complexity",
        "Print how many parameters a classifier has and how much it computes per image (GMAC).",
    ),
    "study": Listed(
        "kmcl.cli.study:study_app",
        "The paper's studies: kernels, terms of the loss, size of the data, weights.",
    ),
    "data": Listed("kmcl.cli.data:data_app", "Describe, check, audit, convert and shard datasets."),
    "figure": Listed("kmcl.cli.figure:figure_app", "Draw figures of the method and of a run."),
}
"""The list of commands is printed from here; the module of a command is imported when it is called."""


class Program(TyperGroup):
    """The commands of `kmcl`: listed by name and summary; the one that is called is loaded."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = {name: TyperCommand(name, help=one.summary) for name, one in COMMANDS.items()}

    def resolve_command(self, context: Any, arguments: list[str]) -> Any:
        name, listed, rest = super().resolve_command(context, arguments)
        return name, None if listed is None else load_command(str(listed.name)), rest


def load_command(name: str) -> Any:
    """A command or group of commands as it is called."""
    module, _, attribute = COMMANDS[name].command.partition(":")
    found = getattr(import_module(module), attribute)
    app = typer.Typer()
    if isinstance(found, typer.Typer):
        app.add_typer(found, name=name, help=COMMANDS[name].summary)
    else:
        app.command(name)(found)
    return typer.main.get_group(app).commands[name]


def make_app() -> typer.Typer:
    """The program's commands."""
    app = typer.Typer(
        cls=Program,
        help="Multi-label image classifiers that know which labels go together and how sure they are.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_program)
    return app


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kmcl {__version__}")
        raise typer.Exit


def _program(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the program; invalid input, or a missing package, gives one message and exit status 2."""
    warnings.filterwarnings("ignore", module="PIL")  # about details of a file that they do not name
    let_waiting_threads_sleep()
    keep_lost_interrupts()
    try:
        make_app()()
    except SystemExit as stop:
        if stop.code in (INTERRUPTED, TERMINATED):
            leave_at_once(stop.code)
        raise
    except KeyboardInterrupt:  # Ctrl-C before the command has begun
        leave_at_once(INTERRUPTED)
    except InputError as error:
        typer.echo(f"kmcl: {error}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        message = explain_missing_package(error)
        if message is None:
            raise
        typer.echo(f"kmcl: {message}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader closed the pipe (`| head`); not an error
        sys.exit(1)
    except WriteError as error:
        typer.echo(f"kmcl: {error}", err=True)
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        typer.echo(f"kmcl: {shorten(f'{error.filename}: {error.strerror}')}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
