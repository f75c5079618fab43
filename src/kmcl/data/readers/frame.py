"""A pandas DataFrame of image paths and labels, with the columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from kmcl.data.dataset import Dataset
from kmcl.data.label_parents import read_parents, with_parents
from kmcl.data.readers.frame_rows import rows_of_frame
from kmcl.data.readers.image_columns import ColumnOptions, dataset_from_rows
from kmcl.data.readers.options import folder_of, parse_options
from kmcl.home_folder import expand_home

if TYPE_CHECKING:
    import pandas as pd


class FrameOptions(ColumnOptions):
    """Options of a DataFrame, besides those of its columns.

    root: the folder that relative image paths start from; default the current one.
    name: the name of the dataset.
    """

    root: Path = Path()
    name: str = Field(default="dataframe", min_length=1)


def read_frame(frame: pd.DataFrame, options: Mapping[str, object]) -> Dataset:
    """The dataset of a DataFrame; absolute image paths are taken as they are.

    A cell of the column of label names may also be a list of names.
    """
    checked = parse_options(FrameOptions, options, "DataFrame")
    root = expand_home(checked.root)
    rows = rows_of_frame(frame)
    dataset = dataset_from_rows(rows, checked, name=checked.name, root=root, allow_outside=True)
    if checked.parents is None:
        return dataset
    return with_parents(dataset, read_parents(checked.parents, folder_of(None)))
