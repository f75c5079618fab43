"""`kmcl import-released`: convert a checkpoint that the authors of KMCL or ASL released."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, Optional

import typer

from kmcl.errors import InputError


def import_released(
    checkpoint: Annotated[Path, typer.Argument(metavar="FILE", help="The released .pth or .ckpt file.")],
    output: Annotated[Path | None, typer.Option(help="Folder to write.", show_default="FILE-model")] = None,
    dataset: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(
            help="What it was trained on: coco2014, voc2007, chestxray14 or adp.",
            show_default="by the number of labels",
        ),
    ] = None,
    labels: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="A text file with the labels, one per line, in the order of the outputs."),
    ] = None,
    image_size: Annotated[
        Optional[int],  # noqa: UP045
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
    folder = output or checkpoint.with_name(f"{checkpoint.stem}-model")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder}: exists and is not empty; choose another --output")
    names = None if labels is None else _read_labels(labels)

    from kmcl.interop.released import import_released as read_released
    from kmcl.models.folder import save_model
    from kmcl.options.methods import KmclOptions

    classifier, description = read_released(
        checkpoint, dataset=dataset, labels=names, image_size=image_size, threshold=threshold
    )
    try:
        save_model(folder, classifier, description)
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror}") from error
    method = description.method
    kernel = f", {method.kernel} kernels" if isinstance(method, KmclOptions) else ""
    typer.echo(
        f"{folder}: {description.encoder} at {description.image_size} px, method {method.name}{kernel}"
        f", {len(description.labels)} labels ({', '.join(description.labels[:3])} ...), "
        f"pixels normalised with mean {description.mean} and deviation {description.std}"
    )
    # A changed weight is a weight like any other: only a comparison with the published digest shows it.
    typer.echo(f"SHA-256 of {checkpoint}: {_digest(checkpoint)}; compare it with that of the published file")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_labels(path: Path) -> tuple[str, ...]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a list of labels: {error}") from error
    return tuple(line.strip() for line in lines if line.strip())
