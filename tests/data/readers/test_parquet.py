"""Parquet: columns of any type, lists, and images inside the file as Hugging Face writes them."""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from kmcl.data import open_dataset
from kmcl.data.check import check_dataset
from kmcl.errors import InputError

pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")

WHOLE = {"val_fraction": 0, "test_fraction": 0}


def encoded(number: int, kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2), (number, 0, 0)).save(buffer, kind)
    return buffer.getvalue()


def write_hugging_face(path: Path, count: int, group: int, names: list[str] | None = None) -> None:
    """What `datasets.Dataset.to_parquet` writes for an Image and a list of ClassLabel."""
    images = [{"bytes": encoded(number), "path": f"{number}.png"} for number in range(count)]
    columns = {
        "image": pa.array(images),
        "labels": pa.array([[number % 3, 2] for number in range(count)], pa.list_(pa.int64())),
    }
    features = {
        "image": {"_type": "Image"},
        "labels": {"feature": {"names": names, "_type": "ClassLabel"}, "_type": "List"},
    }
    table = pa.table(columns)
    if names is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=group)


def test_columns_of_any_type(tmp_path: Path) -> None:
    names = [f"{number}.png" for number in range(3)]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(encoded(number))
    frame = pd.DataFrame({"image": names, "a": [1, 0, 1], "b": [1.0, np.nan, 0.0], "c": [True, False, True]})
    frame["d"] = pd.array([1, None, 0], dtype="Int8")
    frame.index = pd.Index([7, 8, 9])
    frame.to_parquet(tmp_path / "labels.parquet")
    train = open_dataset(str(tmp_path / "labels.parquet"), **WHOLE).splits["train"]
    assert train.targets.tolist() == [[1, 1, 1, 1], [0, -1, 0, -1], [1, 0, 1, 0]]
    assert train.lines is not None
    assert train.lines.tolist() == [2, 3, 4]


@pytest.mark.parametrize("options", [{}, {"separator": ","}])
def test_lists_are_lists_and_not_combinations(tmp_path: Path, options: dict[str, str]) -> None:
    (tmp_path / "0.png").write_bytes(encoded(0))
    frame = pd.DataFrame({"image": ["0.png"] * 4, "labels": [["cat", "dog"], ["dog"], [], None]})
    frame.to_parquet(tmp_path / "labels.parquet")
    dataset = open_dataset(str(tmp_path / "labels.parquet"), **WHOLE, **options)
    assert dataset.labels == ("cat", "dog")
    assert dataset.splits["train"].targets.tolist() == [[1, 1], [0, 1], [0, 0], [0, 0]]


def test_images_inside_the_file(tmp_path: Path) -> None:
    path = tmp_path / "train.parquet"
    write_hugging_face(path, 25, group=10, names=["cat", "dog", "cow"])
    dataset = open_dataset(f"table:{path}", val_fraction=0.2, test_fraction=0.2)
    assert dataset.labels == ("cat", "cow", "dog")
    assert sum(len(split) for split in dataset.splits.values()) == 25
    for split in dataset.splits.values():
        images = pickle.loads(pickle.dumps(split.images))
        for index, targets in enumerate(split.targets.tolist()):
            number = int(split.images.name(index).removeprefix(f"{path}[").removesuffix("]"))
            assert images.load(index)[0, 0].tolist() == [number, 0, 0]
            assert targets == [[1, 1, 0], [0, 1, 1], [0, 1, 0]][number % 3]
    assert check_dataset(dataset, num_threads=4).problems == ()


def test_numbers_without_names_and_bytes_without_a_path(tmp_path: Path) -> None:
    write_hugging_face(tmp_path / "a.parquet", 4, group=4)
    assert open_dataset(str(tmp_path / "a.parquet"), **WHOLE).labels == ("0", "1", "2")
    columns = {"jpg": [encoded(9, "JPEG"), b"no image", None], "mask": [b"", b"", b""], "cat": [1, 0, 1]}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    dataset = open_dataset(str(tmp_path / "b.parquet"), image_column="jpg", **WHOLE)
    assert dataset.labels == ("cat",)
    images = dataset.splits["train"].images
    assert images.load(0).shape == (2, 3, 3)
    for index, message in ((1, r"b\.parquet\[1\] cannot be decoded"), (2, r"b\.parquet\[2\] .*empty")):
        with pytest.raises(InputError, match=message):
            images.load(index)


def test_a_column_with_paths_alone_is_read_from_files(tmp_path: Path) -> None:
    (tmp_path / "5.png").write_bytes(encoded(5))
    image = pa.array(
        [{"bytes": None, "path": "5.png"}] * 2, pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    )
    pq.write_table(pa.table({"image": image, "cat": [1, 0]}), tmp_path / "c.parquet")
    images = open_dataset(str(tmp_path / "c.parquet"), **WHOLE).splits["train"].images
    assert images.load(1)[0, 0].tolist() == [5, 0, 0]


def test_broken_files_and_frames_with_bytes(tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no parquet")
    with pytest.raises(InputError, match=r"bad\.parquet is not a readable Parquet or Arrow file"):
        open_dataset(str(tmp_path / "bad.parquet"))
    pq.write_table(pa.table({"image": pa.array([], pa.string()), "cat": []}), tmp_path / "empty.parquet")
    with pytest.raises(InputError, match=r"empty\.parquet has no rows"):
        open_dataset(str(tmp_path / "empty.parquet"))
    frame = pd.DataFrame({"image": [{"bytes": encoded(0), "path": None}], "cat": [1]})
    with pytest.raises(InputError, match="DataFrame: column 'image' has cells of type dict"):
        open_dataset(frame, root=tmp_path)


def test_text_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    names = pa.array([b"a.png", b"6\x9a.png"], pa.binary()).cast(pa.string(), safe=False)
    pq.write_table(pa.table({"image": names, "cat": [1, 0]}), tmp_path / "labels.parquet")
    with pytest.raises(InputError, match=r"labels\.parquet: column 'image' has text that is not UTF-8: b'6"):
        open_dataset(f"table:{tmp_path / 'labels.parquet'}")
