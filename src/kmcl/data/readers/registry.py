"""The table of readers. To add one, write its module and enter it here; a package of its own has an entry
point in the group `kmcl.readers` that names its `Reader`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from os import PathLike

from kmcl.data.dataset import Dataset
from kmcl.data.readers.options import parse_options
from kmcl.data.readers.reader import Reader
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
        "voc2007": "kmcl.data.readers.voc2007:READER",
        "coco2014": "kmcl.data.readers.coco2014:READER",
        "adp": "kmcl.data.readers.adp:READER",
        "chestxray14": "kmcl.data.readers.chestxray14:READER",
        "medmnist": "kmcl.data.readers.medmnist:READER",
        "shards": "kmcl.data.readers.shards:READER",
    },
    Reader,
)


def read_dataset(spec: object, options: Mapping[str, object]) -> Dataset:
    """Open a dataset, with options already in a mapping; see `kmcl.data.open_dataset`."""
    if isinstance(spec, Dataset):
        if options:
            raise InputError(f"a Dataset that is open already takes no options; got {', '.join(options)}")
        return spec
    pandas = sys.modules.get("pandas")  # where it was never imported, there is no DataFrame
    if pandas is not None and isinstance(spec, pandas.DataFrame):
        from kmcl.data.readers.frame import read_frame

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
    return reader.read(parsed.location, parse_options(reader.options, options, parsed.kind))
