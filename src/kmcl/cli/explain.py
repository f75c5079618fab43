"""`kmcl explain`: saliency maps of the predicted labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

from kmcl.cli.report import show


def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    paths: Annotated[
        list[str], typer.Argument(metavar="IMAGE...", help="Images, folders or patterns (*.jpg).")
    ],
    other: Annotated[
        Optional[list[Path]],  # noqa: UP045
        typer.Option(help="Another run to compare with; may be repeated."),
    ] = None,
    label: Annotated[
        Optional[list[str]],  # noqa: UP045
        typer.Option(help="A label to explain; may be repeated.", show_default="the predicted labels"),
    ] = None,
    full_size: Annotated[
        bool,
        typer.Option(
            "--full-size",
            help="Show images at their original resolution instead of 448 pixels (shorter side).",
        ),
    ] = False,
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("explanation"),
    open_: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
) -> None:
    """Show which regions of an image support its predicted labels (Grad-CAM).

    Writes one HTML file, and the same grid as SVG and PNG.
    """
    from kmcl.data.image_paths import find_images  # Pillow and numpy, which help does not need

    found = find_images(paths)
    if found.left_out.note:
        typer.echo(f"kmcl: {found.left_out.note}", err=True)

    from kmcl.reports import write_explanation

    runs = [run, *(other or [])]
    show(write_explanation(runs, found.images, output, label or (), full_size=full_size), open_)
