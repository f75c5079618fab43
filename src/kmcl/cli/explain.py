"""`kmcl explain`: saliency maps of the predicted labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kmcl import api
from kmcl.cli.written_page import OpenOption, show


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    images: Annotated[
        list[str], typer.Argument(metavar="IMAGE...", help="Images, folders or patterns (*.jpg).")
    ],
    others: Annotated[
        list[Path] | None,
        typer.Option("--other", help="Another run to compare with; may be repeated."),
    ] = None,
    labels: Annotated[
        list[str] | None,
        typer.Option(
            "--label", help="A label to explain; may be repeated.", show_default="the predicted labels"
        ),
    ] = None,
    full_size: Annotated[
        bool,
        typer.Option(
            "--full-size",
            help="Show images at their original resolution instead of 448 pixels (shorter side).",
        ),
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("explanation"),
    open_: OpenOption = False,
) -> None:
    """Show which regions of an image support its predicted labels (Grad-CAM).

    Writes one HTML file, and the same grid as SVG and PNG.
    """
    page = api.explain(
        run, images, others=others or (), labels=labels or (), full_size=full_size, output=output
    )
    show(page, open_)
