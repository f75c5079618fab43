"""Whatever stands in the place of a value of an annotation file: it is read, or refused in plain words."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kmcl.data import open_dataset
from kmcl.errors import InputError
from small_images import save_small_image

JUNK: list[Any] = [
    None,
    5,
    -1.5,
    True,
    "",
    "x",
    "\0",
    "🙂" * 300,
    [],
    [[]],
    {},
    {"a": None},
    ["x", 3],
    10**30,
]

WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0, "images": "."}

COCO = {
    "images": [{"id": 1, "file_name": "1.png", "neg_category_ids": [2]}, {"id": 2, "file_name": "2.png"}],
    "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "iscrowd": 0}],
    "categories": [{"id": 1, "name": "a", "supercategory": "b"}, {"id": 2, "name": "b"}],
}
RESULT = {"from_name": "c", "to_name": "image", "type": "choices", "value": {"choices": ["a", "b"]}}
TASKS = [
    {
        "id": 1,
        "data": {"image": "/data/local-files/?d=1.png", "split": "train", "unknown_labels": ["c"]},
        "annotations": [{"was_cancelled": False, "ground_truth": False, "result": [RESULT]}],
    },
    {"id": 2, "data": {"image": "2.png", "split": "test"}, "annotations": [{"result": []}]},
]
ROWS = [
    {"id": 1, "image": "1.png", "labels": {"choices": ["a", "b"]}, "annotator": 1},
    {"id": 2, "image": "2.png", "boxes": [{"rectanglelabels": ["a"]}]},
]
YOLO = {"path": ".", "train": ["images"], "val": "images", "names": ["a", "b"]}
FEATURES = {"labels": {"feature": {"names": ["a", "b"], "_type": "ClassLabel"}, "_type": "List"}}


def damaged(content: Any, times: int) -> Iterator[Any]:
    """Copies of the content, each with one value or key in it replaced or removed."""
    generator = random.Random(0)
    for _ in range(times):
        changed = copy.deepcopy(content)
        places = list(_places(changed))
        holder, key = generator.choice(places)
        if generator.random() < 0.25:
            del holder[key]
        else:
            holder[key] = copy.deepcopy(generator.choice(JUNK))
        yield changed
    yield from JUNK


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    items = list(node.items()) if isinstance(node, dict) else list(enumerate(node))
    for key, value in items:
        yield node, key
        if isinstance(value, dict | list):
            yield from _places(value)


@pytest.mark.parametrize(
    ("spec", "content"),
    [
        ("coco:x.json", COCO),
        ("labelstudio:x.json", TASKS),
        ("labelstudio:x.json", ROWS),
        ("yolo:x.yaml", YOLO),
    ],
    ids=["coco", "tasks", "rows", "yolo"],
)
def test_only_input_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, content: Any) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        save_small_image(tmp_path / f"{number}.png", number)
        save_small_image(tmp_path / "images" / f"{number}.png", number)
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "1.txt").write_text("1 0 0 1 1\n")
    num_read = 0
    for number, changed in enumerate(damaged(content, 150)):
        name = spec.partition(":")[2]
        text = yaml.safe_dump(changed) if name.endswith("yaml") else json.dumps(changed)
        path = tmp_path / f"{number}-{name}"
        path.write_text(text)
        try:
            dataset = open_dataset(spec.replace("x.", f"{number}-x."), **WHOLE)
        except InputError:
            continue
        num_read += 1
        for split in dataset.splits.values():
            assert split.targets.shape == (len(split), dataset.num_labels)
    assert num_read > 10


def test_damaged_descriptions_of_parquet_files(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    save_small_image(tmp_path / "1.png", 1)
    table = pa.table({"image": ["1.png", "1.png"], "labels": pa.array([[0], [1]], pa.list_(pa.int64()))})
    refusals: dict[str, str] = {}
    for number, features in enumerate(damaged(FEATURES, 60)):
        metadata = {"huggingface": json.dumps({"info": {"features": features}})}
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table.replace_schema_metadata(metadata), path)
        try:
            dataset = open_dataset(f"hf:{path}", val_fraction=0, test_fraction=0)
        except InputError as error:
            refusals[path.name] = str(error)
        else:
            assert len(dataset.splits["train"]) == 2
    assert refusals
    assert all(name in message for name, message in refusals.items())
