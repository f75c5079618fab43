"""`kmcl predict`: labels for images, from files, folders and patterns."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional, TextIO

import typer

from kmcl.cli.guarantee_option import AbstainOption, GuaranteeOption, say_guarantee
from kmcl.cli.image_paths import find_images
from kmcl.cli.prediction_forms import (
    WriteLines,
    choose_form,
    write_json_array,
    write_parquet,
    write_wide_csv,
)
from kmcl.errors import InputError
from kmcl.storage.atomic import replacing

if TYPE_CHECKING:
    from kmcl.serving import ImagePrediction, LabelPrediction
    from kmcl.serving.predictions import Columns


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
    wide: Annotated[
        bool, typer.Option("--wide", help="One row per image and one column per label (CSV or Parquet).")
    ] = False,
    output: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(
            help="Write to this file instead of printing; the form follows its ending: "
            ".csv, .json, .jsonl (an object per line) or .parquet."
        ),
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Images per batch.")] = 32,
    sigma: Annotated[
        bool, typer.Option("--sigma", help="Add sigma, the width of each label's kernel.")
    ] = False,
    guarantee: GuaranteeOption = None,
    abstain: AbstainOption = None,
) -> None:
    """Predict the labels of images: probability with its 90 % interval, threshold and decision.

    A label is present where its probability reaches its threshold; both are calibrated on val. The
    unfamiliarity of an image is the share of val that is less unlike the training images, if the model has
    that post-hoc part; from 0.95 on the image counts as unlike them.
    Unreadable images are reported and skipped; the exit status is then 1. Files of a folder that are no
    images are listed.
    """
    form = choose_form(output, as_json=as_json, as_csv=as_csv, wide=wide)
    if abstain is not None and wide:
        raise InputError("--wide has one column per label, and no place for the decisions of --abstain")
    if form == "parquet":
        import pyarrow  # noqa: F401  # missing packages are found before any image is predicted
    found = find_images(paths)
    images = found.images

    from rich.console import Console
    from rich.progress import Progress

    from kmcl.serving import load
    from kmcl.serving.predictions import Columns

    predictor = load(run, guarantee=guarantee)
    say_guarantee(predictor.rules)
    cutoff = None
    if abstain is not None:
        from kmcl.training.run_guarantee import cutoff_of_run

        cutoff = cutoff_of_run(predictor.rules, abstain, run)
    columns = Columns(sigma, cutoff is not None, predictor.has_unfamiliarity)
    unreadable = []
    errors = Console(stderr=True)
    if found.note:
        errors.print(f"kmcl: {found.note}", soft_wrap=True, highlight=False, markup=False)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as bar:

        def readable() -> Iterator[ImagePrediction]:
            for prediction in bar.track(
                predictor.predict_each(images, batch_size), total=len(images), description="predicting"
            ):
                if prediction.error is None:
                    yield prediction if cutoff is None else prediction.leaving(cutoff)
                else:
                    unreadable.append(prediction.error)
                    errors.print(f"kmcl: {prediction.error}", soft_wrap=True, highlight=False, markup=False)

        if form == "parquet" and output is not None:
            with _replacing(output) as temporary:
                write_parquet(temporary, readable(), columns, predictor.labels, wide)
        else:
            write: WriteLines = partial(write_wide_csv, labels=predictor.labels) if wide else _WRITERS[form]
            with _open_output(output) as file:
                write(file, readable(), columns)
    if unreadable:
        errors.print(f"kmcl: {len(unreadable)} of {len(images)} images could not be read", highlight=False)
        raise typer.Exit(1)


@contextmanager
def _open_output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    with _replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        yield file


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A temporary file in the place of `path`; InputError if it cannot be written there."""
    with ExitStack() as stack:
        try:
            temporary = stack.enter_context(replacing(path))
            temporary.touch()
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from error
        yield temporary


def _write_json(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    of_labels = columns.of_labels
    for prediction in predictions:
        labels = [{name: getattr(label, name) for name in of_labels} for label in prediction.labels]
        of_image = {name: getattr(prediction, name) for name in columns.of_images}
        file.write(json.dumps({"image": prediction.name, **of_image, "labels": labels}) + "\n")


def _write_csv(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    writer = csv.writer(file, lineterminator="\n")
    of_labels = columns.of_labels
    writer.writerow(["image", *of_labels, *columns.of_images])
    for prediction in predictions:
        of_image = [_csv_cell(getattr(prediction, name)) for name in columns.of_images]
        for label in prediction.labels:
            cells = [_csv_cell(getattr(label, name)) for name in of_labels]
            writer.writerow([prediction.name, *cells, *of_image])


def _csv_cell(value: str | float | None) -> str | int:
    """1 and 0 for a decision; six digits of a number, which is what probabilities are rounded to."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str) else f"{value:.6g}"


def _write_table(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    """One line per image: its present labels with probability and interval, and what to be careful about."""
    from rich.console import Console
    from rich.table import Table

    table = Table("image", f"labels: probability (90 % interval){', sigma' if columns.sigma else ''}")
    if columns.unsure:
        table.add_column("left to a person, present or not")
    if columns.unfamiliarity:
        table.add_column("unfamiliarity", justify="right")
    for prediction in predictions:
        labels = [_in_words(label, columns.sigma) for label in prediction.present]
        cells = [prediction.name, "; ".join(labels) or "none"]
        if columns.unsure:
            cells.append(", ".join(label.label for label in prediction.labels if label.unsure) or "none")
        if prediction.unfamiliarity is not None:
            mark = "unlike the training images: " if prediction.is_unfamiliar else ""
            cells.append(f"{mark}{prediction.unfamiliarity:.3f}")
        table.add_row(*cells)
    # In a pipe or file, names are not truncated to the width of a terminal.
    Console(file=file, width=None if file.isatty() else 1000).print(table)


def _in_words(label: LabelPrediction, sigma: bool) -> str:
    words = f"{label.label} {100 * label.probability:.0f} %"
    if label.low is not None and label.high is not None:
        words += f" ({100 * label.low:.0f}–{100 * label.high:.0f})"
    return f"{words}, σ {label.sigma:.3f}" if sigma and label.sigma is not None else words


def _write_json_array(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    write_json_array(file, predictions, columns, _write_json)


_WRITERS: dict[str, WriteLines] = {
    "table": _write_table,
    "csv": _write_csv,
    "jsonl": _write_json,
    "json": _write_json_array,
}
