"""A table that cannot be used gives one error that names file, line, column and value."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from kmcl.data import open_dataset
from kmcl.data.readers.row_problems import RowError
from kmcl.errors import InputError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.png", "b.png"):
        Image.new("RGB", (2, 2)).save(tmp_path / name)
    return tmp_path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("image,cat\n", "no rows"),
        ("picture,cat\na.png,1\n", r"line 1: no column 'image' among picture, cat"),
        ("image,cat,cat\na.png,1,0\n", r"line 1: column 'cat' stands twice"),
        ("image,,cat\na.png,1,0\n", r"line 1: column 2 has no name"),
        ("image,split\na.png,train\n", "line 1: no label column"),
        ("image,cat\na.png,1\nb.png,maybe\n", r"line 3: column 'cat' holds 'maybe'"),
        ("image,cat\na.png,2\n", r"line 2: column 'cat' holds '2'"),
        ("image,cat\na.png,1\nb.png\n", "line 3: 1 values where the header has 2"),
        ("image,cat\na.png,1,0\n", "line 2: 3 values where the header has 2"),
        ("image,cat\na.png,0\nb.png,\n", "no image carries any label"),
        ("image,labels\na.png,\n", "names no label"),
        ("image,labels\na.png,x|y\nb.png,x;y\n", "holds both"),
        ("image,split,cat\na.png,trian,1\n", r"line 2: column 'split' holds 'trian' \(did you mean 'train'"),
        ("image,split,cat\na.png,train,1\nb.png,,1\n", r"line 3: column 'split' holds ''"),
        ("image,cat\n,1\n", "line 2: column 'image' names no image"),
        ("image,cat\na.png,1\n../x/b.png,1\n", r"line 3: image path '\.\./x/b\.png' leads outside"),
        ("image,cat\n/etc/b.png,1\n", r"line 2: image path '/etc/b\.png' leads outside"),
        ("image,cat\nsub/../../b.png,1\n", "line 2: image path .* leads outside"),
        ("image,cat\nnone.png,1\nnada.png,0\n", r"none of the 2 images named in .*none\.png"),
        ("image,cat\na.png,1\n", "too few for a split"),
        (f"image,cat\n{'n' * 400},1\n", "none of the 1 images named in .*; the first is 'n{80}…'; name"),
        (f"image,cat\na.png,{'9' * 4000}\n", "line 2: column 'cat' holds '9{20,80}…', expected 1, 0"),
    ],
)
def test_message_says_what_and_where(folder: Path, content: str, message: str) -> None:
    path = folder / "labels.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"table:{path}")
    if "too few" not in message:
        assert str(path) in str(caught.value)


def open_table(folder: Path, content: str, **options: object) -> None:
    (folder / "labels.csv").write_text(content, encoding="utf-8")
    open_dataset(str(folder / "labels.csv"), **options)


def test_problems_of_one_column_are_one_sentence_with_two_examples(folder: Path) -> None:
    content = "image,cat\n" + "a.png,1\n" * 5 + "a.png,#\n" * 4 + "a.png,!\n"
    with pytest.raises(RowError) as caught:
        open_table(folder, content)
    assert [problem.line for problem in caught.value.problems] == [7, 8, 9, 10, 11]
    assert str(caught.value) == (
        f"{folder / 'labels.csv'}: column 'cat' holds values other than 1, 0, or blank or -1 for unknown: "
        "5 rows, such as '#' (line 7) and '!' (line 11)"
    )


def test_columns_that_are_no_labels_are_named_with_the_option_to_leave_them_out(folder: Path) -> None:
    rows = "".join(
        f"a.png,{number + 70},{number % 2},{number + 20},{'#' if number else 1}\n" for number in range(300)
    )
    content = f"image,id,cat,age,x y\n{rows}"
    with pytest.raises(RowError) as caught:
        open_table(folder, content)
    message = str(caught.value)
    assert len(caught.value.problems) == 3
    assert message.count("\n") == 4
    assert (
        "line 2: column 'id' holds values other than 1, 0, or blank or -1 for unknown in 300 of 300 rows, "
        "such as '70' and '71'" in message
    )
    assert message.endswith("if 'id', 'age', 'x y' are not labels, give -o 'ignore_columns=id,age,x y'")
    with pytest.raises(RowError, match=r"if 'age' is not a label, give -o ignore_columns=xy,id,age$"):
        open_table(folder, content.replace("x y", "xy"), ignore_columns="xy,id")
    open_table(folder, content, ignore_columns="id,age,x y")


@pytest.mark.parametrize(
    "cells", [("dog", "cat"), ("dog|cat", "cow"), ("['dog', 'cat']", "[]")], ids=["names", "divided", "lists"]
)
def test_a_column_of_names_is_recognised(folder: Path, cells: tuple[str, str]) -> None:
    column = "Tags" if cells[0] == "dog" else "seen"
    content = f'image,{column},age\n"a.png","{cells[0]}",70\n"b.png","{cells[1]}",71\n'
    with pytest.raises(RowError, match=f"give -o labels_column={column}; .*ignore_columns={column},age"):
        open_table(folder, content)
    open_table(folder, content, labels_column=column, val_fraction=0, test_fraction=0)


def test_a_patients_column_groups_the_images(folder: Path) -> None:
    (folder / "labels.csv").write_text("image,PatientID,cat\na.png,p7,1\nb.png,p9,0\n")
    dataset = open_dataset(str(folder / "labels.csv"), val_fraction=0, test_fraction=0)
    assert dataset.labels == ("cat",)
    assert dataset.splits["train"].groups.tolist() == ["p7", "p9"]


def test_paths_outside_the_folder_are_one_sentence(folder: Path) -> None:
    content = "image,cat\n" + "".join(f"/data/{number}.png,1\n" for number in range(600))
    with pytest.raises(RowError) as caught:
        open_table(folder, content)
    assert str(caught.value) == (
        f"{folder / 'labels.csv'}: image paths lead outside the folder {folder}: 600 rows, such as "
        "'/data/0.png' (line 2) and '/data/1.png' (line 3); -o allow_outside=true accepts paths outside the "
        "folder"
    )


def test_wrong_encoding_names_the_line_and_the_way_out(folder: Path) -> None:
    path = folder / "labels.csv"
    path.write_bytes("image,fågel\na.png,1\nb.png,0\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"labels\.csv line 1: byte 0xe5 is not utf-8"):
        open_dataset(str(path))
    read = open_dataset(str(path), encoding="latin-1", val_fraction=0, test_fraction=0)
    assert read.labels == ("fågel",)
    with pytest.raises(InputError, match="'klingon'"):
        open_dataset(str(path), encoding="klingon")
    path.write_bytes("image,cat\na.png,1\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        open_dataset(str(path))


def test_broken_files_and_wrong_options(folder: Path) -> None:
    path = folder / "labels.csv"
    path.write_text("image,cat\na.png,1\nb.png,0\n", encoding="utf-8")
    cases: list[tuple[dict[str, object], str]] = [
        ({"label_columns": "dog"}, r"no column 'dog' \(asked for by label_columns\).*there are image, cat"),
        ({"split_column": "fold"}, "asked for by split_column"),
        ({"ignore_columns": "cta"}, "did you mean 'cat'"),
        ({"images": "nowhere"}, "nowhere does not exist"),
        ({"val_fraction": 0.5, "test_fraction": 0.5}, "leave no training images"),
        ({"val_fraction": 1.5}, r"val_fraction=1\.5"),
        ({"seperator": ";"}, "did you mean 'separator'"),
    ]
    for options, message in cases:
        with pytest.raises(InputError, match=message):
            open_dataset(str(path), **options)
    for name in ("gone.csv", "bad.parquet"):
        if name.startswith("bad"):
            (folder / name).write_bytes(b"no parquet")
        with pytest.raises(InputError, match=name):
            open_dataset(str(folder / name))
    (folder / "nul.csv").write_bytes(b"image,cat\na.png,1\0\n")
    with pytest.raises(InputError, match=r"nul\.csv"):
        open_dataset(str(folder / "nul.csv"))
    with pytest.raises(InputError, match="not a file"):
        open_dataset(f"table:{folder}")


def test_name_outside_the_given_labels_is_refused(folder: Path) -> None:
    path = folder / "labels.csv"
    path.write_text("image,labels\na.png,cat\nb.png,cta\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"line 3: .*'cta', not among the labels \(did you mean 'cat'"):
        open_dataset(str(path), label_names=["cat"])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    content=st.one_of(
        st.binary(max_size=120),
        st.lists(
            st.sampled_from(
                ["image", "split", "cat", "a.png", "b.png", "1", "0", "train", "", '"', "\0", "é", "/"]
            ),
            max_size=30,
        ).map(lambda cells: "".join(cell + ",\n;"[len(cell) % 3] for cell in cells).encode()),
    )
)
def test_no_content_whatsoever_raises_anything_but_input_errors(folder: Path, content: bytes) -> None:
    path = folder / "labels.csv"
    path.write_bytes(content)
    with contextlib.suppress(InputError):
        dataset = open_dataset(f"table:{path}", val_fraction=0, test_fraction=0)
        assert dataset.num_labels >= 1
        assert (dataset.splits["train"].targets == 1).any()
