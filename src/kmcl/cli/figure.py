"""`kmcl figure`: single figures, of the method and of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

figure_app = typer.Typer(help="Draw figures of the method and of a run.", no_args_is_help=True)


@figure_app.callback()
def figure() -> None:
    """Draw figures of the method and of a run."""


@figure_app.command()
def predictions(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("figures"),
    num_images: Annotated[int, typer.Option(min=1, max=50, help="How many test images.")] = 6,
    seed: Annotated[int, typer.Option(min=0, help="Seed of their choice.")] = 0,
) -> None:
    """Draw what RUN predicts for random test images: saliency, and probabilities with their intervals.

    Writes predictions.svg, predictions.png and predictions.csv.
    """
    from kmcl.reports.figure_files import write_picture
    from kmcl.reports.prediction_figure import predictions_picture

    picture = predictions_picture(run, num_images, seed)
    write_picture(picture, output)
    for ending in ("svg", "png", "csv"):
        typer.echo(output / f"{picture.name}.{ending}")


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
