"""The table of readers. To add one, write its module and enter it here; a package of its own has an entry
point in the group `kmcl.readers` that names its `Reader`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from kmcl.data.dataset import Dataset
from kmcl.data.label_parents import read_parents, with_parents
from kmcl.data.readers.frame import read_frame
from kmcl.data.readers.options import ReaderOptions, folder_of, parse_options
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.row_problems import RowError, by_source, collected_row_errors
from kmcl.data.recognition import TABLE_SUFFIXES
from kmcl.data.spec import parse_dataset_spec
from kmcl.errors import InputError
from kmcl.registry import Registry

READERS: Registry[Reader] = Registry(
    "dataset",
    "kmcl.readers",
    {
        "digits": "kmcl.data.readers.digits:READER",
        "scenes": "kmcl.data.readers.scenes:READER",
        "table": "kmcl.data.readers.table:READER",
        "folder": "kmcl.data.readers.folder:READER",
        "labelstudio": "kmcl.data.readers.labelstudio:READER",
        "cvat": "kmcl.data.readers.cvat:READER",
        "yolo": "kmcl.data.readers.yolo:READER",
        "hf": "kmcl.data.readers.hf:READER",
        "features": "kmcl.data.readers.features:READER",
        "voc2007": "kmcl.data.readers.voc2007:READER",
        "coco": "kmcl.data.readers.coco:READER",
        "coco2014": "kmcl.data.readers.coco2014:READER",
        "adp": "kmcl.data.readers.adp:READER",
        "chestxray14": "kmcl.data.readers.chestxray14:READER",
        "medmnist": "kmcl.data.readers.medmnist:READER",
        "shards": "kmcl.data.readers.shards:READER",
    },
    Reader,
)


class Reading(NamedTuple):
    """What was read.

    dataset: of the rows that can be used; None where nothing else can be made of them
    errors:  about the other rows, one error for each file
    failure: why there is no dataset, if that is no row's fault alone
    """

    dataset: Dataset | None
    errors: tuple[RowError, ...]
    failure: InputError | None = None


def read_usable_rows(spec: object, options: Mapping[str, object]) -> Reading:
    """Read a dataset and leave out the rows that cannot be used; other bad input is an InputError."""
    with collected_row_errors() as errors:
        try:
            return Reading(_read(spec, options), by_source(errors))
        except RowError as error:
            return Reading(None, by_source([*errors, error]))
        except InputError as error:
            if not errors:
                raise
            return Reading(None, by_source(errors), error)


def read_dataset(spec: object, options: Mapping[str, object]) -> Dataset:
    """Open a dataset, with options already in a mapping; see `kmcl.data.open_dataset`."""
    dataset, errors, _ = read_usable_rows(spec, options)
    if len(errors) > 1:
        raise InputError("\n".join(map(str, errors)))
    if errors or dataset is None:
        raise errors[0]
    return dataset


def _read(spec: object, options: Mapping[str, object]) -> Dataset:
    if isinstance(spec, Dataset):
        if options:
            raise InputError(f"a Dataset that is open already takes no options; got {', '.join(options)}")
        return spec
    pandas = sys.modules.get("pandas")  # where it was never imported, there is no DataFrame
    if pandas is not None and isinstance(spec, pandas.DataFrame):
        return read_frame(spec, options)
    if isinstance(spec, PathLike):
        spec = str(spec)
    if not isinstance(spec, str):
        raise InputError(
            f"a dataset must be a dataset spec such as 'digits' or 'table:labels.csv', a Dataset or a pandas "
            f"DataFrame; got {type(spec).__name__}"
        )
    parsed = parse_dataset_spec(spec, READERS)
    reader = READERS[parsed.kind]
    if reader.place is None and parsed.location is not None:
        raise InputError(f"dataset {parsed.kind!r} has no location, {str(parsed.location)!r} was given")
    if reader.place is not None and parsed.location is None:
        raise InputError(f"dataset {parsed.kind!r} needs {reader.place}, as in {parsed.kind}:PATH")
    checked = parse_options(reader.options, options, parsed.kind)
    dataset = _with_parents(reader.read(parsed.location, checked), checked, parsed.location)
    named = spec.strip().startswith(parsed.kind) or spec.strip().lower().endswith(TABLE_SUFFIXES)
    return dataset if named else replace(dataset, notes=(f"read as {parsed}", *dataset.notes))


def _with_parents(dataset: Dataset, options: ReaderOptions, location: Path | None) -> Dataset:
    if options.parents is None:
        return dataset
    return with_parents(dataset, read_parents(options.parents, folder_of(location)))
