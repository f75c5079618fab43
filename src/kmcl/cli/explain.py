"""`kmcl explain`: where in an image the evidence for its labels lies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from kmcl.cli.predict import find_images
from kmcl.cli.report import show


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    paths: Annotated[
        list[str], typer.Argument(metavar="IMAGE...", help="Images, folders or patterns (*.jpg).")
    ],
    other: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="Another run to set beside; may be given several times."),
    ] = None,
    label: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="A label to explain; may be given several times.", show_default="those predicted"),
    ] = None,
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("explanation"),
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show where in each image the evidence for its predicted labels lies (Grad-CAM).

    Writes one HTML file for a browser, and the grid as SVG and PNG beside it.
    """
    images = find_images(paths)

    from kmcl.reports import write_explanation

    show(write_explanation([run, *(other or [])], images, output, label or ()), open_)
