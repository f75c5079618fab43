"""`kmcl add-label`: a new label from a few examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kmcl import api


def add_label(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model folder.")],
    images: Annotated[
        list[str],
        typer.Argument(
            metavar="EXAMPLES...",
            help="Images that show the label: files, folders or patterns (*.jpg); or a dataset that has it "
            "(table:more.csv), with 1 for images that show it and 0 for others.",
        ),
    ],
    name: Annotated[str, typer.Option(help="Name of the new label.")],
    without: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH", help="Images known not to show it; may be repeated."),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="How many of the images that will be predicted show it, from 0 to 1.",
            show_default="estimated",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to write.", show_default="RUN-NAME"),
    ] = None,
) -> None:
    """Give a trained model a new label from a few examples, without training it again.

    RUN is not changed. The new folder predicts one more label: kmcl predict, evaluate, serve, export and
    report take it. More labels are added one after the other.
    """
    new = api.add_label(run, images, name=name, without=without or (), share=share, output=output)
    for reason in new.added.unreadable:
        typer.echo(f"kmcl: left out, {reason}", err=True)
    typer.echo(new.added.in_words())
    typer.echo(f"{new.path} is written")
