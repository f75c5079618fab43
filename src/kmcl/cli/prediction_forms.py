"""The forms in which `kmcl predict` writes: which one the flags and the name of the file ask for, and how
chunks of predictions are written in it and joined.
"""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kmcl.cli.prediction_text import (
    WriteLines,
    write_csv,
    write_json_lines,
    write_table,
    write_wide_csv,
)
from kmcl.errors import InputError
from kmcl.storage.atomic import replacing

if TYPE_CHECKING:
    from kmcl.serving import ImagePrediction
    from kmcl.serving.predictions import Columns

Form = Literal["table", "csv", "json", "jsonl", "parquet"]

FORM_OF_SUFFIX: dict[str, Form] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}
WRITERS: dict[str, WriteLines] = {
    "table": write_table,
    "csv": write_csv,
    "jsonl": write_json_lines,
    "json": write_json_lines,  # joined to an array at the end
}


def choose_form(output: Path | None, *, as_json: bool, as_csv: bool, wide: bool) -> Form:
    """The form that the file's ending names; without a file, the one that the flags name."""
    if as_json and as_csv:
        raise InputError("--json and --csv cannot be combined")
    form: Form = "jsonl" if as_json else "csv" if as_csv or wide else "table"
    if output is not None:
        if output.suffix.lower() not in FORM_OF_SUFFIX:
            raise InputError(
                f"--output {output}: the form follows the ending, one of {', '.join(FORM_OF_SUFFIX)}; "
                f"got {output.suffix!r}"
            )
        form = FORM_OF_SUFFIX[output.suffix.lower()]
        if (as_csv and form != "csv") or (as_json and form not in ("json", "jsonl")):
            raise InputError(f"{'--csv' if as_csv else '--json'} and --output {output} contradict each other")
    if wide and form not in ("csv", "parquet"):
        raise InputError("--wide is a form of CSV and Parquet, not of JSON")
    return form


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
            from kmcl.serving.predictions import wide_columns

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
