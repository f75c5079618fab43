"""`kmcl add-label`: a new label from a few examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer


def add_label(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model folder.")],
    examples: Annotated[
        list[str],
        typer.Argument(
            metavar="EXAMPLES...",
            help="Images that show the label: files, folders or patterns (*.jpg); or a dataset that has it "
            "(table:more.csv), with 1 for images that show it and 0 for others.",
        ),
    ],
    name: Annotated[str, typer.Option(help="Name of the new label.")],
    without: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(metavar="PATH", help="Images known not to show it; may be repeated."),
    ] = None,
    share: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="How many of the images that will be predicted show it, from 0 to 1.",
            show_default="estimated",
        ),
    ] = None,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(metavar="DIR", help="Folder to write.", show_default="RUN-NAME"),
    ] = None,
) -> None:
    """Give a trained model a new label from a few examples, without training it again.

    RUN is not changed. The new folder predicts one more label: kmcl predict, evaluate, serve, export and
    report take it. More labels are added one after the other.
    """
    from rich.console import Console

    from kmcl.labelling.added_run import add_label_to_run, default_output

    folder = default_output(run, name) if output is None else output
    added = add_label_to_run(
        run,
        examples,
        name,
        folder,
        without=without or (),
        share=share,
        console=Console(stderr=True),
    )
    for reason in added.unreadable:
        typer.echo(f"kmcl: left out, {reason}", err=True)
    typer.echo(added.in_words())
    typer.echo(f"{folder} is written")
