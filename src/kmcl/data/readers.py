"""The table of readers: to add one, write its module and enter it here."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kmcl.data.dataset import Dataset
from kmcl.data.options import ReaderOptions, parse_options
from kmcl.data.word import parse_dataset_word
from kmcl.errors import InputError


@dataclass(frozen=True)
class Reader:
    """Where a reader lives. Its module is imported when the reader is used, with what it needs.

    module:   has the reading function and the model of its options.
    function: `read(location, options) -> Dataset`; a reader without a place on disk takes the options alone.
    options:  a `ReaderOptions` model.
    place:    what the location is, for messages; None where there is none.
    """

    module: str
    function: str
    options: str
    place: str | None

    def load_options(self) -> type[ReaderOptions]:
        model: type[ReaderOptions] = getattr(importlib.import_module(self.module), self.options)
        return model

    def read(self, location: Path | None, options: ReaderOptions) -> Dataset:
        function: Any = getattr(importlib.import_module(self.module), self.function)
        dataset: Dataset = function(options) if location is None else function(location, options)
        return dataset


READERS: dict[str, Reader] = {
    "digits": Reader("kmcl.data.digits", "read_digits", "DigitsOptions", None),
    "table": Reader("kmcl.data.table", "read_table", "TableOptions", "a CSV, TSV or Parquet file"),
    "voc2007": Reader("kmcl.data.voc2007", "read_voc2007", "VocOptions", "the VOCdevkit folder"),
    "coco2014": Reader("kmcl.data.coco2014", "read_coco2014", "CocoOptions", "the folder with annotations/"),
    "adp": Reader("kmcl.data.adp", "read_adp", "AdpOptions", "the release folder"),
    "chestxray14": Reader("kmcl.data.chestxray14", "read_chestxray14", "ChestXrayOptions", "the folder"),
    "medmnist": Reader("kmcl.data.medmnist", "read_medmnist", "MedmnistOptions", "an .npz file"),
}


def read_dataset(word: str, options: Mapping[str, object]) -> Dataset:
    """Open the dataset a word names, with options already in a mapping; see `kmcl.data.open_dataset`."""
    parsed = parse_dataset_word(word, READERS)
    reader = READERS[parsed.kind]
    if reader.place is None and parsed.location is not None:
        raise InputError(f"dataset {parsed.kind!r} has no place on disk, {str(parsed.location)!r} was given")
    if reader.place is not None and parsed.location is None:
        raise InputError(f"dataset {parsed.kind!r} needs {reader.place}, as in {parsed.kind}:PATH")
    return reader.read(parsed.location, parse_options(reader.load_options(), options, parsed.kind))
