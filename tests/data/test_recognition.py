"""What is no table is answered with what it seems to be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from kmcl.data import open_dataset
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
        ("x.npz", "", r"medmnist:.*x\.npz"),
    ],
)
@pytest.mark.parametrize("prefix", ["table:", ""])
def test_files(tmp_path: Path, prefix: str, name: str, content: object, message: str) -> None:
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"{prefix}{tmp_path / name}")
    assert str(tmp_path / name) in str(caught.value)


def test_the_keys_of_a_large_file_are_found_at_its_ends(tmp_path: Path) -> None:
    middle = '"annotations": [' + " " * 300_000 + "]"
    (tmp_path / "big.json").write_text('{"images": [], ' + middle + ', "categories": []}')
    with pytest.raises(InputError, match="looks like COCO annotations"):
        open_dataset(f"table:{tmp_path / 'big.json'}")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["cat/1.jpg", "dog/2.png"], r"a folder per label \(cat, dog\): folder:"),
        (["data.yaml", "images/1.jpg"], r"a dataset of YOLO: yolo:"),
        (["labels.csv", "cat/1.jpg"], r"did you mean table:.*labels\.csv\?"),
        (["1.jpg"], "it has images but no labels"),
        (["annotations/instances_train2014.json"], "looks like COCO 2014: coco2014:"),
        (["VOC2007/x.txt"], "looks like Pascal VOC: voc2007:"),
        (["Data_Entry_2017_v2020.csv"], "looks like chestxray14:"),
        (["notes/readme.txt"], r"give the table inside it, as in table:labels\.csv"),
    ],
)
@pytest.mark.parametrize("prefix", ["table:", ""])
def test_folders(tmp_path: Path, prefix: str, files: list[str], message: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"{prefix}{tmp_path}")
    assert "is a folder, not a file" in str(caught.value)


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
