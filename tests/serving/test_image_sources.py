"""What `kmcl predict` finds in folders, lists, tables, datasets and archives."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from brightness import Brightness
from kmcl.data.tar_images import images_in_tar
from kmcl.errors import InputError
from kmcl.serving.image_sources import ImageSource
from kmcl.serving.parallel_prediction import BATCHES_AHEAD, predict_in_parallel


def picture(brightness: int) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), brightness, dtype=np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, brightness in (("b/2.png", 2), ("a.png", 1), ("c.png", 3), (".hidden.png", 4)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(picture(brightness))
    (tmp_path / "notes.md").write_text("")
    return tmp_path


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """Two samples of WebDataset, of which one has two images, and what is no image."""
    path = tmp_path / "shard-000.tar"
    with tarfile.open(path, "w") as archive:
        for name, content in (
            ("train/0001.png", picture(10)),
            ("train/0001.json", b"{}"),
            ("train/0002.left.png", picture(20)),
            ("train/0002.right.png", picture(30)),
            ("train/._0002.png", b"of a Mac"),
            ("train/0003.png", b"broken"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def opened(*arguments: str) -> list[tuple[str, int | str]]:
    """Name and brightness of each image, or why it cannot be read, by records that went through JSON."""
    source = ImageSource(arguments)
    records = json.loads(json.dumps(list(source.find())))
    found: list[tuple[str, int | str]] = []
    for prediction in Brightness().predict_each(map(source.open, records)):
        if prediction.error is None:
            found.append((prediction.name, round(255 * prediction.labels[0].score)))
        else:
            found.append((prediction.name, prediction.error))
    return found


def test_a_folder_is_walked_in_the_order_of_the_paths(folder: Path):
    names = ["a.png", "b/2.png", "c.png"]
    source = ImageSource([str(folder)])
    found = list(source.find())
    assert found == [str(folder / name) for name in names] == sorted(found)
    assert source.left_out.note == f"1 file is no image and was left out: {folder / 'notes.md'}"


def test_a_list_has_paths_relative_to_it(folder: Path):
    (folder / "b" / "list.txt").write_text(f"\ufeff2.png\n\n../a.png\r\n{folder / 'c.png'}\n../a.png\n")
    assert [value for _, value in opened(str(folder / "b" / "list.txt"))] == [2, 1, 3, 1]


def test_a_table_needs_no_labels(folder: Path):
    (folder / "table.csv").write_text("id,image\n7,c.png\n8,b/2.png\n")
    for text in (str(folder / "table.csv"), f"table:{folder / 'table.csv'}"):
        assert opened(text) == [(str(folder / "c.png"), 3), (str(folder / "b/2.png"), 2)]


def test_every_split_of_a_dataset():
    source = ImageSource(["digits"])
    records = list(source.find())
    assert {record["split"] for record in records} == {"train", "val", "test"}
    first = source.open(json.loads(json.dumps(records[0])))
    assert first.load().shape[2] == 3


def test_images_of_a_shard_are_read_at_their_position(shard: Path):
    found = opened(str(shard))
    assert found[:3] == [
        (f"{shard}/train/0001.png", 10),
        (f"{shard}/train/0002.left.png", 20),
        (f"{shard}/train/0002.right.png", 30),
    ]
    assert found[3][0] == f"{shard}/train/0003.png"
    assert "cannot be decoded" in str(found[3][1])
    assert opened(f"{shard.parent}/*.tar") == found


def test_a_damaged_shard_is_one_sentence(shard: Path):
    content = shard.read_bytes()
    shard.write_bytes(content[: content.index(b"train/0002.right") + 530])
    with pytest.raises(InputError, match=r"shard-000\.tar is cut off within train/0002\.right\.png"):
        list(images_in_tar(shard))
    shard.write_bytes(b"\x1f\x8b" + bytes(2000))
    with pytest.raises(InputError, match="not a readable, uncompressed tar file"):
        list(images_in_tar(shard))
    shard.with_suffix(".tar.gz").write_bytes(b"")
    with pytest.raises(InputError, match="is compressed"):
        list(ImageSource([str(shard.with_suffix(".tar.gz"))]).find())


def test_an_image_that_two_arguments_name_comes_once(folder: Path):
    names = [name for name, _ in opened(str(folder / "c.png"), str(folder), str(folder / "*.png"))]
    assert names == [str(folder / name) for name in ("c.png", "a.png", "b/2.png")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nowhere.jpg", "there is no such file or folder"),
        ("no*.jpg", "matches no file"),
        ("tabel:labels.csv", "there is no such file or folder"),
    ],
)
def test_what_is_not_there_is_refused_at_once(tmp_path: Path, text: str, message: str, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        ImageSource([text])


def test_a_list_that_is_none(tmp_path: Path):
    (tmp_path / "list.txt").write_bytes(b"a.png\n\xff\xfe.png\n")
    with pytest.raises(InputError, match=r"list\.txt line 2: is not UTF-8"):
        list(ImageSource([str(tmp_path / "list.txt")]).find())
    (tmp_path / "list.txt").write_bytes(b"\x89PNG"[1:] + b"\0\0")
    with pytest.raises(InputError, match=r"list\.txt line 1: holds a null character"):
        list(ImageSource([str(tmp_path / "list.txt")]).find())


def test_many_images_are_predicted_in_order_and_read_as_they_are_needed(folder: Path, monkeypatch):
    monkeypatch.setattr("kmcl.serving.parallel_prediction.available_cores", lambda: 3)
    num_read = 0

    def images():
        nonlocal num_read
        for number in range(200):
            num_read += 1
            yield np.full((8, 8, 3), number, dtype=np.uint8) if number != 50 else folder / "none.png"

    predictions = predict_in_parallel(Brightness(), images(), batch_size=4)
    found = []
    for prediction in predictions:
        found.append(prediction.error is not None or round(255 * prediction.labels[0].score) == len(found))
        assert num_read <= len(found) + 4 * (3 * BATCHES_AHEAD + 1)
    assert len(found) == 200
    assert all(found)
