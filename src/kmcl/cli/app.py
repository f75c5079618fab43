"""The program `kmcl`: its commands, and what a mistake looks like."""

from __future__ import annotations

import sys

import typer

from kmcl import __version__
from kmcl.cli.complexity import complexity
from kmcl.cli.data import data_app
from kmcl.cli.evaluate import evaluate
from kmcl.cli.predict import predict
from kmcl.cli.train import train
from kmcl.errors import InputError

app = typer.Typer(
    help="Multi-label image classifiers that know which labels go together and how sure they are.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command("train")(train)
app.command()(evaluate)
app.command()(predict)
app.add_typer(data_app, name="data")
app.command()(complexity)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kmcl {__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options of the program itself."""


def main() -> None:
    """Run the program; a user's mistake ends it with one message and status 2."""
    try:
        app()
    except InputError as error:
        typer.echo(f"kmcl: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away (`| head`); nothing is wrong
        sys.exit(1)


if __name__ == "__main__":
    main()
