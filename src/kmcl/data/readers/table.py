"""The user's own images: a CSV, TSV or Parquet file of image paths and labels.

    image,split,cat,dog            image,labels
    pics/1.jpg,train,1,0           pics/1.jpg,cat|dog
    pics/2.jpg,test,,1             pics/2.jpg,

What the columns are: `kmcl.data.readers.image_columns` and `columns`. Paths are relative to the file. A
Parquet file may hold the images themselves (`kmcl.data.readers.parquet`).
"""

from __future__ import annotations

from pathlib import Path

from kmcl.data.dataset import Dataset
from kmcl.data.readers.image_columns import ColumnOptions, dataset_from_rows
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.table_rows import read_rows
from kmcl.home_folder import expand_home


class TableOptions(ColumnOptions):
    """Options of `table:`, besides those of its columns.

    images:        the folder that paths start from; default the file's own.
    allow_outside: accept image paths that leave that folder.
    encoding:      the encoding of a CSV or TSV file.
    """

    images: Path | None = None
    allow_outside: bool = False
    encoding: str = "utf-8"


def read_table(path: Path, options: TableOptions) -> Dataset:
    """Read a table of images and labels; see the module's description of the format."""
    table = read_rows(path, options.encoding)
    root = path.parent if options.images is None else path.parent / expand_home(options.images)
    # Most such files are called labels.csv: their folder says more.
    name = path.resolve().parent.name if path.stem == "labels" else path.stem
    return dataset_from_rows(table, options, name=name, root=root, allow_outside=options.allow_outside)


READER = Reader(read_table, TableOptions, place="a CSV, TSV or Parquet file")
