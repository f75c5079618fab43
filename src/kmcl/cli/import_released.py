"""`kmcl import-released`: convert a checkpoint that the authors of KMCL or ASL released."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kmcl import api


def import_released(
    checkpoint: Annotated[Path, typer.Argument(metavar="FILE", help="The released .pth or .ckpt file.")],
    output: Annotated[Path | None, typer.Option(help="Folder to write.", show_default="FILE-model")] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="What it was trained on: coco2014, voc2007, chestxray14 or adp.",
            show_default="by the number of labels",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(help="A text file with the labels, one per line, in the order of the outputs."),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            min=32, max=8192, help="Side of the images.", show_default="224 for TResNet-M, else 448"
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(min=0, max=1, help="Score from which a label counts as present.")
    ] = 0.8,
) -> None:
    """Convert the TResNet weights released by the authors of KMCL or ASL to a model folder.

    predict, export, serve and push accept that folder.
    """
    imported = api.import_released(
        checkpoint, output=output, dataset=dataset, labels=labels, image_size=image_size, threshold=threshold
    )
    description = imported.description
    kernel = getattr(description.method, "kernel", None)
    typer.echo(
        f"{imported.folder}: {description.encoder} at {description.image_size} px, method "
        f"{description.method.name}{f', {kernel} kernels' if kernel else ''}"
        f", {len(description.labels)} labels ({', '.join(description.labels[:3])} ...), "
        f"pixels normalised with mean {description.mean} and deviation {description.std}"
    )
    typer.echo(f"SHA-256 of {checkpoint}: {imported.digest}; compare it with that of the published file")
