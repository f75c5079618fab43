"""`kmcl predict`: labels for images, from files, folders and patterns."""

from __future__ import annotations

import csv
import glob
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, TextIO

import typer

from kmcl.errors import InputError
from kmcl.storage.atomic import replacing

if TYPE_CHECKING:
    from kmcl.serving import ImagePrediction

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}


def predict(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="A run or model folder, a hub model OWNER/NAME, or an .onnx file."
        ),
    ],
    paths: Annotated[
        list[str], typer.Argument(metavar="PATH...", help="Images, folders or patterns (*.jpg).")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one object per line and image.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one row per image and label.")] = False,
    output: Annotated[Optional[Path], typer.Option(help="Write to this file instead of printing.")] = None,  # noqa: UP045
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 32,
) -> None:
    """Predict the labels of images: probability, decision and sigma of each label.

    Unreadable images are reported and skipped; the exit status is then 1.
    """
    if as_json and as_csv:
        raise InputError("--json and --csv cannot be combined")
    images = find_images(paths)

    from rich.console import Console
    from rich.progress import Progress

    from kmcl.serving import load

    predictor = load(run)
    unreadable = []
    errors = Console(stderr=True)
    with (
        _open_output(output) as file,
        Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar,
    ):
        write = _WRITERS["json" if as_json else "csv" if as_csv else "table"]

        def readable() -> Iterator[ImagePrediction]:
            for prediction in bar.track(
                predictor.predict_each(images, batch_size), total=len(images), description="predicting"
            ):
                if prediction.error is None:
                    yield prediction
                else:
                    unreadable.append(prediction.error)
                    errors.print(f"kmcl: {prediction.error}", soft_wrap=True, highlight=False, markup=False)

        write(file, readable())
    if unreadable:
        errors.print(f"kmcl: {len(unreadable)} of {len(images)} images could not be read", highlight=False)
        raise typer.Exit(1)


def find_images(paths: Iterable[str]) -> list[Path]:
    """The given files, images below the given folders, and matches of the patterns, without repeats."""
    found: dict[Path, None] = {}
    for text in paths:
        path = Path(text)
        if path.is_dir():
            inside = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES)
            if not inside:
                raise InputError(f"{path}: there is no image in this folder")
            found.update(dict.fromkeys(inside))
        elif path.exists() or not glob.has_magic(text):
            if not path.exists():
                raise InputError(f"{path}: there is no such file or folder")
            found[path] = None
        else:
            matches = sorted(glob.glob(text, recursive=True))
            if not matches:
                raise InputError(f"{text}: matches no file")
            found.update(dict.fromkeys(Path(match) for match in matches if Path(match).is_file()))
    return list(found)


@contextmanager
def _open_output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    with ExitStack() as stack:
        try:
            temporary = stack.enter_context(replacing(path))
            file = stack.enter_context(temporary.open("w", encoding="utf-8", newline=""))
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        yield file


def _write_json(file: TextIO, predictions: Iterable[ImagePrediction]) -> None:
    for prediction in predictions:
        labels = [asdict(label) for label in prediction.labels]
        file.write(json.dumps({"image": prediction.name, "labels": labels}) + "\n")


def _write_csv(file: TextIO, predictions: Iterable[ImagePrediction]) -> None:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["image", "label", "probability", "present", "sigma", "score", "threshold"])
    for prediction in predictions:
        for label in prediction.labels:
            sigma = "" if label.sigma is None else f"{label.sigma:.6g}"
            row = [prediction.name, label.label, f"{label.probability:.6g}", int(label.present), sigma]
            writer.writerow([*row, f"{label.score:.6g}", f"{label.threshold:.6g}"])


def _write_table(file: TextIO, predictions: Iterable[ImagePrediction]) -> None:
    """One line per image: its present labels with probability and sigma."""
    from rich.console import Console
    from rich.table import Table

    table = Table("image", "labels (probability, sigma)")
    for prediction in predictions:
        parts = []
        for label in prediction.present:
            sigma = "" if label.sigma is None else f", σ {label.sigma:.3f}"
            parts.append(f"{label.label} ({100 * label.probability:.0f} %{sigma})")
        table.add_row(prediction.name, "; ".join(parts) or "none")
    # In a pipe or file, names are not truncated to the width of a terminal.
    Console(file=file, width=None if file.isatty() else 1000).print(table)


_WRITERS = {"json": _write_json, "csv": _write_csv, "table": _write_table}
