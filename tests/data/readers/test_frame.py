"""A DataFrame goes through the table's checks; an open Dataset is taken as it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from kmcl.data import UNKNOWN, open_dataset
from kmcl.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        Image.new("RGB", (3, 2), (number, 0, 0)).save(tmp_path / f"{number}.png")
    return tmp_path


def make_frame(**columns: object) -> pd.DataFrame:
    usual = {"image": [f"{number}.png" for number in range(4)], "split": ["train", "train", "val", "test"]}
    return pd.DataFrame(usual | columns, index=[7, 7, 3, 1])


def test_label_columns_of_any_type(folder: Path) -> None:
    frame = make_frame(
        cat=[True, False, True, False], dog=[1.0, np.nan, 0.0, -1.0], fox=pd.array([0, 1, None, 1], "Int64")
    )
    dataset = open_dataset(frame, root=folder)
    assert (dataset.name, dataset.labels) == ("dataframe", ("cat", "dog", "fox"))
    assert dataset.splits["train"].targets.tolist() == [[1, 1, 0], [0, UNKNOWN, 1]]
    assert dataset.splits["val"].targets.tolist() == [[1, 0, UNKNOWN]]
    assert dataset.splits["test"].images.load(0)[0, 0, 0] == 3


def test_it_is_the_dataset_of_the_same_table(folder: Path) -> None:
    frame = make_frame(labels=["cat|dog", "", "dog", "cat"]).drop(columns="split")
    frame.to_csv(folder / "labels.csv", index=False)
    from_file = open_dataset(str(folder / "labels.csv"), val_fraction=0)
    from_frame = open_dataset(frame, root=str(folder), val_fraction="0")
    assert from_frame.labels == from_file.labels == ("cat", "dog")
    for name, split in from_file.splits.items():
        assert from_frame.splits[name].targets.tolist() == split.targets.tolist()
        assert from_frame.splits[name].lines is None


def test_paths_may_be_absolute_or_from_the_current_folder(folder: Path, monkeypatch) -> None:
    frame = make_frame(image=[folder / f"{number}.png" for number in range(4)], cat=[1, 0, 1, 1])
    assert open_dataset(frame).splits["train"].images.load(1)[0, 0, 0] == 1
    monkeypatch.chdir(folder)
    assert open_dataset(make_frame(cat=[1, 0, 1, 1])).splits["train"].images.load(1)[0, 0, 0] == 1


def test_lists_of_names(folder: Path) -> None:
    frame = make_frame(labels=[["dog", "cat"], [], ("dog",), {"cat"}])
    dataset = open_dataset(frame, root=folder, name="pets")
    assert (dataset.name, dataset.labels) == ("pets", ("cat", "dog"))
    assert dataset.splits["train"].targets.tolist() == [[1, 1], [0, 0]]


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"cat": [1, 0, 5, 1]}, {}, "^DataFrame row 3: column 'cat' holds '5'"),
        (
            {"cat": [1, 0, 1, 1], "image": ["a", "b", "c", None]},
            {},
            "^DataFrame row 4: column 'image' names no",
        ),
        (
            {"cat": [1, 0, 1, 1], "split": ["train", "tran", "val", "test"]},
            {},
            "^DataFrame row 2: .*did you mean",
        ),
        ({"cat": [0, 0, 0, 0]}, {}, "^DataFrame: no image carries any label"),
        ({}, {}, "^DataFrame: no label column"),
        ({"cat": [1, 0, 1, 1]}, {"image_column": "img"}, "^DataFrame: no column 'img'"),
        ({"cat": [1, 0, 1, 1]}, {"encoding": "utf-8"}, "unknown option 'encoding' of dataset 'DataFrame'"),
        ({"cat": [1, 0, 1, 1]}, {"root": "nowhere"}, "folder of images nowhere does not exist"),
        ({"cat": [1] * 4, "image": list("abcd")}, {}, "none of the 4 images named in the DataFrame exists"),
    ],
)
def test_what_is_wrong_names_the_row(folder: Path, columns, options, message) -> None:
    with pytest.raises(InputError, match=message):
        open_dataset(make_frame(**columns), **({"root": folder} | options))


def test_repeated_column_and_no_rows(folder: Path) -> None:
    frame = make_frame(cat=1, dog=0).rename(columns={"dog": "cat"})
    with pytest.raises(InputError, match="DataFrame: column 'cat' stands twice"):
        open_dataset(frame, root=folder)
    with pytest.raises(InputError, match="DataFrame has no rows"):
        open_dataset(make_frame(cat=1).iloc[:0], root=folder)


def test_an_open_dataset_is_taken_as_it_is() -> None:
    dataset = open_dataset("digits", size=12)
    assert open_dataset(dataset) is dataset
    with pytest.raises(InputError, match="takes no options; got size"):
        open_dataset(dataset, size=12)
    with pytest.raises(InputError, match="a pandas DataFrame; got list"):
        open_dataset([1, 2])
