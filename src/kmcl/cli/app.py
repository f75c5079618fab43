"""The program `kmcl`: its commands, and how errors are reported."""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module

import typer

from kmcl.cli.add_label import add_label
from kmcl.cli.complexity import complexity
from kmcl.cli.data import data_app
from kmcl.cli.evaluate import evaluate
from kmcl.cli.explain import explain
from kmcl.cli.export import export
from kmcl.cli.figure import figure_app
from kmcl.cli.import_released import import_released
from kmcl.cli.interruption import INTERRUPTED, TERMINATED, keep_lost_interrupts, leave_at_once
from kmcl.cli.missing_packages import explain_missing_package
from kmcl.cli.monitor import monitor
from kmcl.cli.predict import predict
from kmcl.cli.push import push
from kmcl.cli.report import report
from kmcl.cli.select import select
from kmcl.cli.serve import serve
from kmcl.cores import let_waiting_threads_sleep
from kmcl.errors import InputError, shorten
from kmcl.storage.atomic import WriteError
from kmcl.version import __version__


def make_app(arguments: Sequence[str] | None = None) -> typer.Typer:
    """The program's commands; all of them complete unless `arguments` select one.

    The flags of some commands come from the settings, and reading these takes longer than the rest of the
    start-up. If another command, or the list of commands, is requested, these have only their summaries.
    """
    app = typer.Typer(
        help="Multi-label image classifiers that know which labels go together and how sure they are.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(_program)
    wanted = set(SUMMARIES if arguments is None else arguments)
    for name, summary in SUMMARIES.items():
        app.command(name, help=summary)(_with_settings(name) if name in wanted else lambda: None)
    app.command()(evaluate)
    app.command()(predict)
    app.command()(report)
    app.command()(explain)
    app.command()(export)
    app.command()(serve)
    app.command()(monitor)
    app.command()(select)
    app.command("add-label")(add_label)
    app.command()(push)
    app.command("import-released")(import_released)
    app.command()(complexity)
    if arguments is None or "study" in arguments:
        app.add_typer(import_module("kmcl.cli.study").study_app, name="study", help=STUDY_SUMMARY)
    else:
        app.command("study", help=STUDY_SUMMARY)(lambda: None)
    app.add_typer(data_app, name="data")
    app.add_typer(figure_app, name="figure")
    return app


SUMMARIES = {
    "train": "Train a model on DATA: settings from the preset, then --config, then flags.",
    "compare": "Train METHODS on DATA with every seed, and compare them with paired intervals.",
}
"""The commands that have a flag for every setting."""

STUDY_SUMMARY = "The paper's studies: kernels, terms of the loss, size of the data, weights."


def _with_settings(name: str) -> Callable[..., None]:
    command: Callable[..., None] = getattr(import_module(f"kmcl.cli.{name}"), name)
    return command


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
        make_app(sys.argv[1:])()
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
