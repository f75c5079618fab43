"""What is no table is opened as what it is, or answered with what it seems to be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data import open_dataset
from kmcl.data.readers.registry import READERS
from kmcl.data.spec import DatasetSpec, parse_dataset_spec
from kmcl.errors import InputError

COCO = {"info": {}, "images": [{"id": 1}], "annotations": [], "categories": [{"id": 1, "name": "cat"}]}
TASKS = [{"data": {"image": "a.jpg"}, "annotations": [{"result": []}]}]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", COCO, r"is JSON, .*looks like COCO annotations: coco:.*x\.json"),
        ("x.json", TASKS, r"is JSON, .*export of Label Studio: labelstudio:.*x\.json"),
        ("x.xml", "", r"annotations of CVAT are opened as cvat:.*x\.xml"),
        ("x.json", [{"image": "a.jpg"}], r"is JSON, not CSV, TSV or Parquet; write a table"),
        ("x.jsonl", {"image": "a.jpg"}, "is JSON"),
        ("x.xlsx", "", "is a spreadsheet; save it as CSV"),
        ("x.npz", "", r"feature vectors .*features:.*x\.npz"),
    ],
)
def test_files_that_are_no_table(tmp_path: Path, name: str, content: object, message: str) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"table:{tmp_path / name}")
    assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("x.json", COCO, "coco"),
        ("x.json", TASKS, "labelstudio"),
        ("x.xml", "", "cvat"),
        ("x.yaml", "path: a\nnames: [cat, dog]", "yolo"),
        ("x.npz", "", "features"),
    ],
)
def test_files_without_a_kind_are_opened_as_what_they_are(
    tmp_path: Path, name: str, content: object, kind: str
) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    assert parse_dataset_spec(str(tmp_path / name), READERS) == DatasetSpec(kind, tmp_path / name)


def test_archives_of_medmnist_are_known_by_their_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", train_images=np.zeros(1))
    np.savez(tmp_path / "b.npz", features=np.zeros(1))
    kinds = [parse_dataset_spec(str(tmp_path / name), READERS).kind for name in ("a.npz", "b.npz")]
    assert kinds == ["medmnist", "features"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("x.json", [{"image": "a.jpg"}], "write a table"), ("x.xlsx", "", "save it as CSV")],
)
def test_files_that_nothing_opens(tmp_path: Path, name: str, content: object, message: str) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message):
        open_dataset(tmp_path / name)


def test_the_keys_of_a_large_file_are_found_at_its_ends(tmp_path: Path) -> None:
    middle = '"annotations": [' + " " * 300_000 + "]"
    (tmp_path / "big.json").write_text('{"images": [], ' + middle + ', "categories": []}')
    with pytest.raises(InputError, match="looks like COCO annotations"):
        open_dataset(f"table:{tmp_path / 'big.json'}")


FOLDERS = [
    (["cat/1.jpg", "dog/2.png"], r"a folder per label \(cat, dog\): folder:", "folder"),
    (["train/cat/1.jpg", "val/dog/2.png"], r"a folder per label \(cat, dog\): folder:", "folder"),
    (["data.yaml", "images/1.jpg"], r"a dataset of YOLO: yolo:", "yolo"),
    (["annotations/instances_train2014.json"], "looks like COCO 2014: coco2014:", "coco2014"),
    (["VOC2007/x.txt"], "looks like Pascal VOC: voc2007:", "voc2007"),
    (["Data_Entry_2017_v2020.csv"], "looks like ChestX-ray14: chestxray14:", "chestxray14"),
    (["labels.csv", "cat/1.jpg"], r"did you mean table:.*labels\.csv\?", "table"),
    (["labels.csv", "more.csv"], r"did you mean table:.*labels\.csv\?", None),
    (["1.jpg"], "it has images but no labels", None),
    (["notes/readme.txt"], r"give the table inside it, as in table:labels\.csv", None),
]


@pytest.mark.parametrize(("files", "message", "kind"), FOLDERS)
def test_folders(tmp_path: Path, files: list[str], message: str, kind: str | None) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"table:{tmp_path}")
    assert "is a folder, not a file" in str(caught.value)
    if kind is None:
        with pytest.raises(InputError, match=message):
            open_dataset(tmp_path)
    else:
        location = tmp_path / "labels.csv" if kind == "table" else tmp_path
        assert parse_dataset_spec(str(tmp_path), READERS) == DatasetSpec(kind, location)


def test_a_note_says_how_a_folder_was_read(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for number in range(15):
            Image.new("RGB", (2, 2), (number, len(label), ord(label[0]))).save(
                tmp_path / label / f"{number}.png"
            )
    dataset = open_dataset(tmp_path)
    assert dataset.labels == ("cat", "dog")
    assert dataset.notes[0] == f"read as folder:{tmp_path}"
    assert not any("read as" in note for note in open_dataset(f"folder:{tmp_path}").notes)


def test_coco_annotations_in_a_folder_and_a_table_of_any_other_name(tmp_path: Path) -> None:
    (tmp_path / "annotations").mkdir()
    (tmp_path / "annotations" / "mine.json").write_text(json.dumps(COCO))
    with pytest.raises(InputError, match=r"COCO annotations \(mine\.json\): coco:"):
        open_dataset(f"table:{tmp_path}")
    Image.new("RGB", (2, 2)).save(tmp_path / "a.png")
    (tmp_path / "labels.txt").write_text("image,cat\na.png,1\n")
    assert open_dataset(f"table:{tmp_path / 'labels.txt'}", val_fraction=0, test_fraction=0).labels == (
        "cat",
    )
    with pytest.raises(InputError, match="unknown kind of dataset 'nowhere'"):
        open_dataset("nowhere")
    with pytest.raises(InputError, match="unknown kind of dataset"):
        open_dataset("x" * 5000)
