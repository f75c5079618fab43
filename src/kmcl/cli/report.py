"""`kmcl report`: one or several runs as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kmcl import api
from kmcl.cli.written_page import OpenOption, show


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders; the first is the base.")],
    output: Annotated[
        Path | None,
        typer.Option(
            help="Folder to write to.", show_default="RUN/report, or report next to the first of several"
        ),
    ] = None,
    open_: OpenOption = False,
    groups: Annotated[
        Path | None,
        typer.Option(
            help="YAML or JSON file: name of a group, list of its labels.", show_default="found by clustering"
        ),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option("--image", help="An image to explain; may be given several times."),
    ] = None,
    saliency: Annotated[
        str, typer.Option(help="Images to explain besides: random, disagreement (of two runs) or none.")
    ] = "random",
    num_images: Annotated[int, typer.Option(min=0, help="How many of them.")] = 6,
    num_masked: Annotated[
        int,
        typer.Option(
            min=0,
            help="Images on which the label that a label usually occurs with is covered: 12 for each label.",
        ),
    ] = 24,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all random choices.")] = 0,
) -> None:
    """Write a report of RUN: one HTML file for a browser, with its figures as SVG and PNG files.

    With several runs, they are compared. Missing parts of a run are listed in the report.
    """
    page = api.report(
        runs,
        output=output,
        groups=groups,
        images=images or (),
        saliency=saliency,  # type: ignore[arg-type]
        num_images=num_images,
        num_masked=num_masked,
        seed=seed,
    )
    show(page, open_)
