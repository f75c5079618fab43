"""A dataset written in any format and opened again is the same dataset."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from kmcl.cli.data import data_app
from kmcl.data import Dataset, open_dataset, write_dataset
from kmcl.errors import InputError
from small_images import one_colour_dataset, save_small_image

# No label has a slash, so that it can be a folder.
LABELS = ("zebra", "cat & dog", "'a', \"b\"")
TARGETS = {"train": [[1, 0, 0], [0, 1, 1], [0, 0, 0]], "val": [[0, 1, 0]], "test": [[1, 1, 1], [0, 0, 1]]}
FORMATS = ["table", "coco", "folder", "labelstudio", "hf"]


def made(*, unknown: bool = False, groups: bool = False) -> Dataset:
    return one_colour_dataset(LABELS, TARGETS, unknown=unknown, groups=groups)


def by_image(dataset: Dataset) -> dict[tuple[str, int], tuple[list[int], str]]:
    """Split and colour of each image, with its targets by label and its group."""
    order = [dataset.labels.index(label) for label in LABELS]
    return {
        (name, int(split.images.load(row)[0, 0, 0])): (
            split.targets[row, order].tolist(),
            "" if split.groups is None else str(split.groups[row]),
        )
        for name, split in dataset.splits.items()
        for row in range(len(split))
    }


@pytest.mark.parametrize("kind", FORMATS)
def test_written_and_opened_again(tmp_path: Path, kind: str) -> None:
    spec = write_dataset(made(), f"{kind}:{tmp_path / 'out'}")
    read = open_dataset(spec)
    assert spec.startswith(f"{kind}:")
    assert by_image(read) == by_image(made())
    if kind != "folder":  # whose labels are in the order of the alphabet
        assert read.labels == LABELS
        for name, split in made().splits.items():
            np.testing.assert_array_equal(read.splits[name].targets, split.targets)


@pytest.mark.parametrize("kind", ["table", "coco", "labelstudio", "hf"])
def test_unknown_labels_stay_unknown(tmp_path: Path, kind: str) -> None:
    written = made(unknown=True, groups=kind != "coco")
    assert by_image(open_dataset(write_dataset(written, f"{kind}:{tmp_path / 'out'}"))) == by_image(written)


def test_folders_cannot_hold_unknown_labels_nor_any_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot say that a label is unknown, as .* is for train\[0\]"):
        write_dataset(made(unknown=True), f"folder:{tmp_path / 'a'}")
    split = made().splits["train"]
    with pytest.raises(InputError, match="'a/b' cannot be the name of a folder"):
        write_dataset(Dataset("x", ("a/b", "c", "d"), {"train": split}), f"folder:{tmp_path / 'b'}")
    with pytest.raises(InputError, match="a label called 'split' cannot be written to a table"):
        write_dataset(Dataset("x", ("split", "c", "d"), {"train": split}), str(tmp_path / "c"))


@pytest.mark.parametrize("first", FORMATS)
@pytest.mark.parametrize("second", FORMATS)
def test_image_files_go_through_unchanged(tmp_path: Path, first: str, second: str) -> None:
    save_small_image(tmp_path / "a.jpg", 1)
    save_small_image(tmp_path / "b.webp", 2)
    (tmp_path / "labels.csv").write_text("image,split,cat\na.jpg,train,1\nb.webp,test,1\n")
    source = open_dataset(str(tmp_path / "labels.csv"), val_fraction=0)
    between = open_dataset(write_dataset(source, f"{first}:{tmp_path / '1'}"), val_fraction=0)
    last = open_dataset(write_dataset(between, f"{second}:{tmp_path / '2'}"), val_fraction=0)
    back = open_dataset(write_dataset(last, str(tmp_path / "3")), val_fraction=0)
    assert {name: split.targets.tolist() for name, split in back.splits.items()} == {
        "train": [[1]],
        "test": [[1]],
    }
    for name, original in (("train-00000.jpg", "a.jpg"), ("test-00000.webp", "b.webp")):
        assert (tmp_path / "3" / "images" / name).read_bytes() == (tmp_path / original).read_bytes()


def test_what_other_programs_read(tmp_path: Path) -> None:
    write_dataset(made(unknown=True), f"coco:{tmp_path / 'coco'}")
    content = json.loads((tmp_path / "coco" / "annotations" / "instances_train.json").read_text())
    assert content["categories"][1] == {"id": 2, "name": "cat & dog", "supercategory": ""}
    assert content["images"][0]["neg_category_ids"] == [2]
    assert content["annotations"][0] == {
        "id": 1,
        "image_id": 1,
        "category_id": 1,
        "bbox": [0, 0, 4, 5],
        "area": 20,
        "segmentation": [],
        "iscrowd": 0,
    }
    write_dataset(made(unknown=True), f"labelstudio:{tmp_path / 'ls'}")
    task = json.loads((tmp_path / "ls" / "tasks.json").read_text())[1]
    assert task["data"] == {"image": "/data/local-files/?d=images/train-00001.png", "split": "train"}
    assert task["annotations"][0]["result"][0]["value"] == {"choices": list(LABELS[1:])}
    choices = ElementTree.parse(tmp_path / "ls" / "label_config.xml").find("Choices")
    assert choices is not None
    assert choices.get("choice") == "multiple"
    assert [choice.get("value") for choice in choices] == list(LABELS)
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    write_dataset(made(), f"hf:{tmp_path / 'hf'}")
    names = sorted(path.name for path in (tmp_path / "hf" / "data").iterdir())
    assert names == [f"{split}-00000-of-00001.parquet" for split in ("test", "train", "validation")]
    schema = pq.read_schema(tmp_path / "hf" / "data" / names[1])
    labels = json.loads(schema.metadata[b"huggingface"])["info"]["features"]["labels"]
    assert labels == {"feature": {"names": list(LABELS), "_type": "ClassLabel"}, "_type": "Sequence"}


def test_large_splits_have_several_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kmcl.data.writers.hf.ROWS_OF_GROUP", 1)
    monkeypatch.setattr("kmcl.data.writers.hf.BYTES_OF_SHARD", 100)
    read = open_dataset(write_dataset(made(), f"hf:{tmp_path / 'out'}"))
    assert by_image(read) == by_image(made())
    assert (tmp_path / "out" / "data" / "train-00001-of-00002.parquet").is_file()


def test_a_folder_with_files_is_left_alone_and_formats_are_named(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        write_dataset(made(), str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(InputError, match=r"'coc:x' is no format to write \(did you mean 'coco'\?\)"):
        write_dataset(made(), "coc:x")


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_that_cannot_be_read_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    for name in ("a.png", "b.png"):
        save_small_image(tmp_path / "data" / name, 0)
    (tmp_path / "data" / "labels.csv").write_text("image,split,cat\na.png,train,1\nb.png,test,1\n")
    source = open_dataset(f"table:{tmp_path / 'data' / 'labels.csv'}", val_fraction=0)
    (tmp_path / "data" / "b.png").unlink()
    with pytest.raises(InputError, match=r"b\.png does not exist"):
        write_dataset(source, f"{kind}:{tmp_path / 'out'}")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_command(tmp_path: Path) -> None:
    result = CliRunner().invoke(data_app, ["convert", "digits", f"table:{tmp_path / 'out'}", "-o", "size=30"])
    assert result.exit_code == 0, result.output
    assert "labels.csv" in result.output
    assert len(list((tmp_path / "out" / "images").glob("train-*.png"))) == 30
