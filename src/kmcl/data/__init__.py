"""Datasets: opened by `open_dataset`, loaded as batches, written by `write_dataset`."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from kmcl.data.dataset import SPLIT_NAMES, UNKNOWN, Dataset, ImageStore, Split
from kmcl.data.partners import partner_order
from kmcl.data.readers.options import CutOptions, DrawOptions, ReaderOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.registry import read_dataset
from kmcl.data.vectors import FeatureVectors
from kmcl.data.writers.registry import write_dataset

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "SPLIT_NAMES",
    "UNKNOWN",
    "CutOptions",
    "Dataset",
    "DrawOptions",
    "FeatureVectors",
    "ImageStore",
    "Reader",
    "ReaderOptions",
    "Split",
    "open_dataset",
    "partner_order",
    "write_dataset",
]


def open_dataset(spec: str | PathLike[str] | Dataset | pd.DataFrame, **options: object) -> Dataset:
    """Open a dataset by its spec: `scenes`, `table:labels.csv`, `folder:DIR`, `coco:FILE.json`, `hf:DIR`,
    `features:FILE`, ... (`docs/data.md` has all); or take a pandas DataFrame with an image column.

    spec:    the kind of dataset and where it is, separated by a colon; a path to a table needs no `table:`.
             A DataFrame has the columns of a table; its relative image paths start from the option `root`,
             by default the current folder. A `Dataset` is returned as it is.
    options: settings of that kind of dataset (`val_fraction=0.2`); values may be text, as a command line
             gives them. An unknown option is an InputError that suggests the nearest known one.

    Images are decoded only on access; labels are read at once, and errors in them raise an InputError that
    names file and line, or the row of the DataFrame.
    """
    return read_dataset(spec, options)
