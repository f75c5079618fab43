"""Tar shards: what `kmcl data shard` writes is read again; shards of others, and broken ones."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.data import open_dataset
from kmcl.data.shard_writing import write_shards
from kmcl.errors import InputError


def jpeg(brightness: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 12, 3), brightness, np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Seven images with groups and an unknown label."""
    rows = ["image,split,patient,cat,hot dog"]
    for number in range(7):
        (tmp_path / f"{number}.JPG").write_bytes(jpeg(30 * number))
        split = ("train", "train", "train", "train", "train", "val", "test")[number]
        group = number // 2 if number < 4 else number
        rows.append(f"{number}.JPG,{split},p{group},{number % 2},{'' if number == 3 else 1}")
    (tmp_path / "labels.csv").write_text("\n".join(rows) + "\n")
    return tmp_path / "labels.csv"


def test_a_dataset_comes_back_as_it_was(table: Path, tmp_path: Path):
    before = open_dataset(f"table:{table}")
    result = CliRunner().invoke(
        make_app(), ["data", "shard", f"table:{table}", str(tmp_path / "shards"), "--images", "2"]
    )
    assert result.exit_code == 0, result.output
    assert "wrote 5 shards" in result.output
    after = pickle.loads(pickle.dumps(open_dataset(f"shards:{tmp_path / 'shards'}")))
    assert after.labels == before.labels
    assert list(after.splits) == list(before.splits)
    for name, split in before.splits.items():
        again = after.splits[name]
        np.testing.assert_array_equal(again.targets, split.targets)
        np.testing.assert_array_equal(again.groups, split.groups)
        for index in range(len(split)):
            np.testing.assert_array_equal(again.images.load(index), split.images.load(index))
    assert (tmp_path / "shards" / "train-000001.tar").read_bytes().count(jpeg(60)) == 1  # not encoded again
    assert after.splits["val"].images.name(0).endswith("val-000000.tar/00000000.jpg")


def test_images_without_files_become_png_and_shards_of_shards_are_equal(tmp_path: Path):
    digits = open_dataset("digits", size=60)
    first = write_shards(digits, tmp_path / "a", 25)
    again = open_dataset(f"shards:{tmp_path / 'a'}")
    assert again.labels == digits.labels
    np.testing.assert_array_equal(again.splits["test"].images.load(3), digits.splits["test"].images.load(3))
    second = write_shards(again, tmp_path / "b", 25)
    assert [len(path.read_bytes()) for path in first] == [len(path.read_bytes()) for path in second]


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def labels(*names: str) -> bytes:
    return json.dumps({"labels": names}).encode()


def test_shards_of_others(tmp_path: Path):
    """In folders by split, several files in a sample, no labels.json."""
    write_tar(
        tmp_path / "training" / "a_0.tar",
        {
            "x/1.jpg": jpeg(1),
            "x/1.json": labels("dog"),
            "x/1.txt": b"",
            "x/2.json": labels(),
            "x/2.jpg": jpeg(2),
        },
    )
    write_tar(tmp_path / "validation" / "b_0.tar", {"1.jpg": jpeg(3), "1.json": labels("cat", "dog")})
    dataset = open_dataset(f"shards:{tmp_path}")
    assert dataset.labels == ("cat", "dog")
    assert {name: split.targets.tolist() for name, split in dataset.splits.items()} == {
        "train": [[0, 1], [0, 0]],
        "val": [[1, 1]],
    }
    assert dataset.splits["train"].groups is None
    assert open_dataset(f"shards:{tmp_path}", label_names="dog,cat,cow").labels == ("dog", "cat", "cow")
    with pytest.raises(InputError, match="label 'cat' occurs and is not among the labels"):
        open_dataset(f"shards:{tmp_path}", label_names="dog")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"1.jpg": b"", "2.json": b"{}"}, r"a\.tar: 1\.jpg has no \.json file"),
        ({"1.jpg": b"", "1.json": b"{"}, r"1\.json must have the labels as in"),
        ({"1.jpg": b"", "1.json": b'{"labels": "cat"}'}, "labels must be a list of names"),
        ({"1.jpg": b"", "1.json": b"[]"}, r"1\.json must have the labels as in"),
        ({"1.jpg": b"", "1.b.png": b"", "1.json": labels()}, r"has two images, 1\.jpg and 1\.b\.png"),
        ({"1.txt": b""}, "has no sample of an image"),
    ],
)
def test_a_broken_sample_is_named(files: dict[str, bytes], message: str, tmp_path: Path):
    write_tar(tmp_path / "a.tar", files)
    with pytest.raises(InputError, match=message):
        open_dataset(f"shards:{tmp_path}")


def test_a_missing_shard_and_a_wrong_folder_are_refused(tmp_path: Path):
    digits = open_dataset("digits", size=60)
    shards = write_shards(digits, tmp_path / "a", 25)
    with pytest.raises(InputError, match="exists and is not empty"):
        write_shards(digits, tmp_path / "a", 25)
    shards[0].unlink()
    with pytest.raises(InputError, match=r"train-000000\.tar is missing, which labels\.json names"):
        open_dataset(f"shards:{tmp_path / 'a'}")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"has no \.tar file"):
        open_dataset(f"shards:{tmp_path / 'empty'}")
    with pytest.raises(InputError, match="does not exist"):
        open_dataset(f"shards:{tmp_path / 'none'}")
