"""`kmcl select`: which images to label next."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from kmcl import api
from kmcl.cli.written_page import show


def select(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, or a model folder.")],
    images: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Images, folders or patterns (*.jpg).")
    ],
    count: Annotated[int, typer.Option(min=1, help="Images to choose.")] = 100,
    strategy: Annotated[
        Literal["spread", "uncertain", "random"],
        typer.Option(
            help="spread: unlike the labelled images and each other, slightly better than random on "
            "photographs; uncertain: unclear labels, which was worse than random there; random."
        ),
    ] = "spread",
    output: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")] = Path("to-label"),
    url_prefix: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Where Label Studio finds the images: what their paths are appended to.",
            show_default="its local files",
        ),
    ] = None,
    url_root: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder that these paths start from; of local files the document root.",
            show_default="/",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
    open_: Annotated[bool, typer.Option("--open", help="Open the contact sheet in the browser.")] = False,
) -> None:
    """Choose the images to label next, and write them as a table, Label Studio tasks and a contact sheet.

    Images that the run's dataset has already are left out. The tasks have the model's predictions as
    pre-annotations; label_config.xml is the labelling configuration that they need.
    """
    selected = api.select(
        run,
        images,
        count=count,
        strategy=strategy,
        output=output,
        url_prefix=url_prefix,
        url_root=url_root,
        seed=seed,
    )
    for reason in selected.chosen.unreadable:
        typer.echo(f"kmcl: {reason}", err=True)
    typer.echo(f"{len(selected.chosen.images)} of {selected.num_images} images chosen ({strategy})")
    show(selected.page, open_)
