"""Files of predictions: CSV with a row per label or per image, JSON, Parquet, and a table for people.

A file's ending names its form. Chunks of predictions are written in it, and joined.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

from rich.console import Console
from rich.table import Table

from kmcl.errors import InputError
from kmcl.serving.predictions import Columns, ImagePrediction, LabelPrediction, wide_columns
from kmcl.storage.atomic import replacing

Form = Literal["table", "csv", "json", "jsonl", "parquet"]

FORM_OF_SUFFIX: dict[str, Form] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}
PRINTED: dict[str, Form] = {"table": "table", "csv": "csv", "json": "jsonl"}
"""The forms that can be printed, image by image: JSON as an object per line."""


def choose_form(output: Path | None, form: str | None, *, wide: bool) -> Form:
    """The form that the file's ending names, which must be the given one; without a file the given one."""
    if form is not None and form not in PRINTED:
        raise InputError(f"form must be one of {', '.join(PRINTED)}; got {form!r}")
    if output is None:
        chosen = PRINTED[form or ("csv" if wide else "table")]
    elif output.suffix.lower() not in FORM_OF_SUFFIX:
        raise InputError(
            f"--output {output}: the form follows the ending, one of {', '.join(FORM_OF_SUFFIX)}; "
            f"got {output.suffix!r}"
        )
    else:
        chosen = FORM_OF_SUFFIX[output.suffix.lower()]
        if form is not None and form != chosen and (form, chosen) != ("json", "jsonl"):
            raise InputError(f"--{form} and --output {output} contradict each other")
    if wide and chosen not in ("csv", "parquet"):
        raise InputError("--wide is a form of CSV and Parquet, not of JSON")
    return chosen


WriteLines = Callable[[TextIO, Iterable[ImagePrediction], Columns], None]
"""Writes the wanted columns of predictions as text; without any, what comes before the first of them."""


def write_json_lines(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    of_labels = columns.of_labels
    for prediction in predictions:
        labels = [{name: getattr(label, name) for name in of_labels} for label in prediction.labels]
        of_image = dict(zip(columns.of_images, columns.values_of(prediction), strict=True))
        file.write(json.dumps({"image": prediction.name, **of_image, "labels": labels}) + "\n")


def write_csv(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    """One row per image and label; an unreadable image has one row, in which only its name and error are."""
    writer = csv.writer(file, lineterminator="\n")
    of_labels = columns.of_labels
    writer.writerow(["image", *of_labels, *columns.of_images])
    for prediction in predictions:
        of_image = [_csv_cell(value) for value in columns.values_of(prediction)]
        for label in prediction.labels:
            cells = [_csv_cell(getattr(label, name)) for name in of_labels]
            writer.writerow([prediction.name, *cells, *of_image])
        if prediction.error is not None and columns.error:
            writer.writerow([prediction.name, *("" for _ in of_labels), *of_image])


def write_wide_csv(
    file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns, labels: Sequence[str]
) -> None:
    """One row per image: its name, the probability of each label, and the wanted columns of images."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(wide_columns("image", labels, columns.of_images))
    for prediction in predictions:
        numbers: list[float | None] = [label.probability for label in prediction.labels]
        cells = map(_csv_cell, numbers or [None] * len(labels))
        of_image = [_csv_cell(value) for value in columns.values_of(prediction)]
        writer.writerow([prediction.name, *cells, *of_image])


def _csv_cell(value: str | float | None) -> str | int:
    """1 and 0 for a decision; six digits of a number, which is what probabilities are rounded to."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return int(value)
    return value if isinstance(value, str) else f"{value:.6g}"


def write_table(file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns) -> None:
    """One line per image: its present labels with probability and interval, and what to be careful about."""
    table = Table("image", f"labels: probability (90 % interval){', sigma' if columns.sigma else ''}")
    if columns.unsure:
        table.add_column("left to a person, present or not")
    if columns.unfamiliarity:
        table.add_column("unfamiliarity", justify="right")
    for prediction in predictions:
        if prediction.error is not None:
            continue
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


WRITERS: dict[str, WriteLines] = {
    "table": write_table,
    "csv": write_csv,
    "jsonl": write_json_lines,
    "json": write_json_lines,  # joined to an array at the end
}


@dataclass(frozen=True)
class PredictionFiles:
    """Writes files of one form: chunks of predictions, and all of them as one file.

    labels: of the model
    wide:   one row per image and one column per label
    """

    form: Form
    columns: Columns
    labels: Sequence[str]
    wide: bool = False

    def __post_init__(self) -> None:
        if self.wide:
            wide_columns("image", self.labels, self.columns.of_images)

    @property
    def write_lines(self) -> WriteLines:
        """For a form that is text."""
        return partial(write_wide_csv, labels=self.labels) if self.wide else WRITERS[self.form]

    def write(self, path: Path, predictions: Iterable[ImagePrediction]) -> None:
        """Write a chunk, which is there as a whole or not at all."""
        with replacing(path, durable=True) as temporary:
            if self.form == "parquet":
                self._write_parquet(temporary, predictions)
            else:
                with temporary.open("w", encoding="utf-8", newline="") as file:
                    self.write_lines(file, predictions, self.columns)

    def join(self, chunks: Sequence[Path], output: Path) -> None:
        """Write chunks one after the other into one file."""
        with replacing(output, durable=True) as temporary:
            if self.form == "parquet":
                _join_parquet(chunks, temporary, self._schema())
            elif self.form == "json":
                _join_json(chunks, temporary)
            else:
                self._join_text(chunks, temporary)

    def _join_text(self, chunks: Sequence[Path], path: Path) -> None:
        header = io.StringIO(newline="")
        self.write_lines(header, (), self.columns)
        content = header.getvalue().encode()
        with path.open("wb") as joined:
            joined.write(content)
            for chunk in chunks:
                with chunk.open("rb") as part:
                    part.seek(len(content))
                    shutil.copyfileobj(part, joined)

    def _schema(self) -> Any:
        import pyarrow as pa

        types = dict.fromkeys(("image", "label", "error"), pa.string())
        types |= dict.fromkeys(("present", "unsure"), pa.bool_())
        if self.wide:
            of_labels = [pa.field(label, pa.float64()) for label in self.labels]
        else:
            of_labels = [pa.field(name, types.get(name, pa.float64())) for name in self.columns.of_labels]
        of_images = [pa.field(name, types.get(name, pa.float64())) for name in self.columns.of_images]
        return pa.schema([pa.field("image", pa.string()), *of_labels, *of_images])

    def _write_parquet(self, path: Path, predictions: Iterable[ImagePrediction]) -> None:
        """The columns of `PredictionList.to_frame`, long or wide, and the reason of an unreadable image."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = self._schema()
        rows = self._wide_rows(predictions) if self.wide else self._long_rows(predictions)
        columns = list(zip(*rows, strict=True)) or [()] * len(schema)
        arrays = [pa.array(cells, field.type) for cells, field in zip(columns, schema, strict=True)]
        pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)

    def _wide_rows(self, predictions: Iterable[ImagePrediction]) -> Iterable[list[Any]]:
        for one in predictions:
            found: list[float | None] = [label.probability for label in one.labels]
            probabilities = found or [None] * len(self.labels)
            yield [one.name, *probabilities, *self.columns.values_of(one)]

    def _long_rows(self, predictions: Iterable[ImagePrediction]) -> Iterable[list[Any]]:
        names = self.columns.of_labels
        for one in predictions:
            of_image = self.columns.values_of(one)
            for label in one.labels:
                yield [one.name, *(getattr(label, name) for name in names), *of_image]
            if one.error is not None and self.columns.error:
                yield [one.name, *(None for _ in names), *of_image]


def _join_parquet(chunks: Sequence[Path], path: Path, schema: Any) -> None:
    import pyarrow.parquet as pq

    with pq.ParquetWriter(path, schema) as writer:
        for chunk in chunks:
            writer.write_table(pq.read_table(chunk, schema=schema, use_threads=False))


def _join_json(chunks: Sequence[Path], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="") as joined:
        joined.write("[")
        separator = "\n"
        for chunk in chunks:
            with chunk.open(encoding="utf-8") as lines:
                for line in lines:
                    joined.write(separator + line.rstrip("\n"))
                    separator = ",\n"
        joined.write("\n]\n")
