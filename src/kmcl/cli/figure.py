"""`kmcl figure`: figures that need no run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

figure_app = typer.Typer(help="Draw figures of the method itself.", no_args_is_help=True)


@figure_app.callback()
def figure() -> None:
    """Draw figures of the method itself."""


@figure_app.command()
def similarity(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("figures"),
) -> None:
    """Draw the Bhattacharyya, Mahalanobis and Gaussian similarities of two kernels (the paper's figure).

    Writes similarity.svg, similarity.png and similarity.csv, and prints the values of the contour panels.
    """
    from rich.console import Console
    from rich.table import Table

    from kmcl.reports.figure_files import write_picture
    from kmcl.reports.similarity_figure import similarity_picture

    picture = similarity_picture()
    write_picture(picture, output)
    table = Table(*picture.numbers.header)
    for row in picture.numbers.rows:
        table.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row))
    Console().print(table)
    for ending in ("svg", "png", "csv"):
        typer.echo(output / f"{picture.name}.{ending}")
