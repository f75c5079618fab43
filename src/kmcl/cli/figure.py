"""`kmcl figure`: single figures, of the method and of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kmcl import api

figure_app = typer.Typer(no_args_is_help=True)


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
    for path in api.draw_predictions(run, output=output, num_images=num_images, seed=seed).files:
        typer.echo(path)


@figure_app.command()
def similarity(
    output: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("figures"),
) -> None:
    """Draw the Bhattacharyya, Mahalanobis and Gaussian similarities of two kernels (the paper's figure).

    Writes similarity.svg, similarity.png and similarity.csv, and prints the values of the contour panels.
    """
    drawn = api.draw_similarity(output=output)
    table = Table(*drawn.numbers.header)
    for row in drawn.numbers.rows:
        table.add_row(*(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row))
    Console().print(table)
    for path in drawn.files:
        typer.echo(path)
