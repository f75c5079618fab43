"""A column of lists gives the names in them, however the lists are written."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from kmcl.data import Dataset, open_dataset
from kmcl.data.readers.label_lists import is_list_column, parse_list, write_list
from kmcl.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        Image.new("RGB", (2, 2)).save(tmp_path / f"{number}.png")
    return tmp_path


def open_cells(folder: Path, cells: list[object], **options: object) -> Dataset:
    frame = pd.DataFrame({"image": [f"{number}.png" for number in range(3)], "labels": cells})
    frame.to_csv(folder / "labels.csv", index=False)
    return open_dataset(str(folder / "labels.csv"), val_fraction=0, test_fraction=0, **options)


@pytest.mark.parametrize(
    "cells",
    [
        ["['person','car']", "[ 'car' ]", "[]"],
        ['["person", "car"]', '["car"]', ""],
        ["['person' 'car']", "['car']", "[]"],
        ["('person', 'car')", "('car',)", "()"],
        ["{'person', 'car'}", "{'car'}", "[]"],
        ["[person, car]", "[car]", "[]"],
        ["person|car", "car", ""],
    ],
    ids=["python", "json", "numpy", "tuples", "sets", "bare", "no lists"],
)
@pytest.mark.parametrize("options", [{}, {"separator": "|"}], ids=["guessed", "separator given"])
def test_every_way_to_write_a_list(folder: Path, cells: list[object], options: dict[str, object]) -> None:
    dataset = open_cells(folder, cells, **options)
    assert dataset.labels == ("car", "person")
    assert dataset.splits["train"].targets.tolist() == [[1, 1], [1, 0], [0, 0]]


def test_names_keep_every_character(folder: Path) -> None:
    dataset = open_cells(folder, [str(["a|b", 'it\'s; \\ [1], "x"']), "['é']", "['a|b']"])
    assert dataset.labels == ("a|b", 'it\'s; \\ [1], "x"', "é")


def test_brackets_in_a_name_make_no_list(folder: Path) -> None:
    assert open_cells(folder, ["[other]|cat", "[other]", "(rare)"]).labels == ("(rare)", "[other]", "cat")
    assert open_cells(folder, ["[a]|[b]", "[b]", ""]).labels == ("[a]", "[b]")


def test_a_cell_that_is_no_list_among_lists_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match=r"line 3: column 'labels' holds 'car', expected a list"):
        open_cells(folder, ["['person','car']", "car", "['car']"])
    with pytest.raises(InputError, match=r"line 4: column 'labels' holds .*car.*, expected a list"):
        open_cells(folder, ["['person','car']", "['car']", "[\"car']"])


def test_lists_of_a_frame_with_a_separator_in_names(folder: Path) -> None:
    frame = pd.DataFrame({"image": ["0.png", "1.png"], "labels": [["a|b", "c;d"], ["c;d"]]})
    dataset = open_dataset(frame, root=folder, val_fraction=0, test_fraction=0, separator=",")
    assert dataset.labels == ("a|b", "c;d")


@given(st.lists(st.text(min_size=1).map(str.strip).filter(bool)))
def test_what_is_written_is_read(names: list[str]) -> None:
    cell = write_list(names)
    assert parse_list(cell) == names
    assert is_list_column([cell])


@given(st.text(alphabet="[](){}'\"\\,| ab", max_size=12))
def test_no_text_is_an_error(text: str) -> None:
    names = parse_list(text)
    assert names is None or all(name == name.strip() and name for name in names)
