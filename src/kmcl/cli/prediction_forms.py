"""The forms in which `kmcl predict` writes: which one the flags and the name of the file ask for, and the
ones with a whole file or one row per image.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from kmcl.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from kmcl.serving import ImagePrediction
    from kmcl.serving.predictions import Columns

Form = Literal["table", "csv", "json", "jsonl", "parquet"]

FORM_OF_SUFFIX: dict[str, Form] = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}
IMAGES_AT_ONCE = 1000
"""Images whose predictions are in memory while a Parquet file is written."""

WriteLines = Callable[[TextIO, Iterable["ImagePrediction"], "Columns"], None]
"""Writes the wanted columns of predictions as text."""


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


def write_json_array(
    file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns, write_lines: WriteLines
) -> None:
    """One JSON document: the array of the objects that `write_lines` writes, one per line."""
    file.write("[")
    for position, prediction in enumerate(predictions):
        line = io.StringIO()
        write_lines(line, [prediction], columns)
        file.write(("," if position else "") + "\n" + line.getvalue().rstrip("\n"))
    file.write("\n]\n")


def write_wide_csv(
    file: TextIO, predictions: Iterable[ImagePrediction], columns: Columns, labels: Sequence[str]
) -> None:
    """One row per image: its name, the probability of each label, and the unfamiliarity if it is wanted."""
    _require_no_other_label(labels, columns)
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["image", *labels, *columns.of_images])
    for prediction in predictions:
        numbers = [label.probability for label in prediction.labels]
        if prediction.unfamiliarity is not None:
            numbers.append(prediction.unfamiliarity)
        writer.writerow([prediction.name, *(f"{number:.6g}" for number in numbers)])


def write_parquet(
    path: Path,
    predictions: Iterable[ImagePrediction],
    columns: Columns,
    labels: Sequence[str],
    wide: bool,
) -> None:
    """The columns of `PredictionList.to_frame`, long or wide."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if wide:
        _require_no_other_label(labels, columns)
    writer = None
    try:
        for frame in _frames(predictions, labels, wide, columns.sigma):
            table = pa.Table.from_pandas(frame, preserve_index=False)
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
    finally:
        if writer is not None:
            writer.close()


def _frames(
    predictions: Iterable[ImagePrediction], labels: Sequence[str], wide: bool, sigma: bool
) -> Iterator[pd.DataFrame]:
    """At least one frame, so that a file without images has its columns too."""
    import pandas as pd

    from kmcl.serving import PredictionList

    remaining = iter(predictions)
    part = PredictionList(islice(remaining, IMAGES_AT_ONCE))
    if wide and not part:
        yield pd.DataFrame({"image": [], **{label: [] for label in labels}})
        return
    while True:
        yield part.to_frame(wide=True).reset_index() if wide else part.to_frame(sigma=sigma)
        part = PredictionList(islice(remaining, IMAGES_AT_ONCE))
        if not part:
            return


def _require_no_other_label(labels: Sequence[str], columns: Columns) -> None:
    """No label is named like a column that is not one of the labels."""
    if "image" in labels:
        raise InputError("--wide has a column 'image' for the names, and the model has a label 'image' too")
    if columns.unfamiliarity and "unfamiliarity" in labels:
        raise InputError(
            "--wide has a column 'unfamiliarity' for the images, and the model has a label of that name too"
        )
