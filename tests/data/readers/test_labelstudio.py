"""Label Studio's exports: several annotators, cancelled annotations, skipped tasks, its names of images."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kmcl.data import Dataset, open_dataset
from kmcl.data.check import check_dataset, check_spec
from kmcl.errors import InputError
from miniature_datasets import labelstudio_choice as chosen
from miniature_datasets import labelstudio_task as task
from small_images import save_small_image

WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}


def open_tasks(folder: Path, tasks: object, **options: object) -> Dataset:
    (folder / "export.json").write_text(json.dumps(tasks), encoding="utf-8")
    return open_dataset(f"labelstudio:{folder / 'export.json'}", **{**WHOLE, **options})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(6):
        save_small_image(tmp_path / "photos" / f"{number} a.png", number)
    return tmp_path


def test_the_check_names_all_wrong_tasks_and_checks_the_other_images(folder: Path) -> None:
    tasks = [
        task(3, "photos/0 a.png", chosen("cat"), split="train"),
        task(5, "no picture", chosen("cat"), split="train"),
        task(7, "photos/1 a.png", chosen("cat"), split="trian"),
        task(9, "nothing", chosen("dog"), split="test"),
        task(11, "photos/2 a.png", chosen("dog"), split="test"),
    ]
    (folder / "export.json").write_text(json.dumps(tasks))
    report = check_spec(f"labelstudio:{folder / 'export.json'}", WHOLE)
    assert report.num_images == 2
    parts = ["task 5: its data names no image", "1 a.png: has the split 'trian' (did you mean", "task 9: its"]
    messages = [problem.message for problem in report.problems]
    assert len(messages) == 3
    assert all(any(part in message for message in messages) for part in parts)


def test_majority_ties_cancelled_and_skipped(folder: Path) -> None:
    tasks = [
        task(1, "photos/0 a.png", chosen("cat", "dog"), chosen("cat"), chosen("cat", "fox")),
        task(2, "photos/1 a.png", chosen("cat"), chosen("dog"), chosen("fox", was_cancelled=True)),
        task(3, "photos/2 a.png", chosen()),
        task(4, "photos/3 a.png", chosen("cat", was_cancelled=True)),
        task(5, "photos/4 a.png"),
        task(6, "photos/5 a.png", chosen("cat"), chosen("dog", ground_truth=True)),
    ]
    dataset = open_tasks(folder, tasks)
    assert dataset.labels == ("cat", "dog")  # fox was chosen by a minority only
    assert dataset.splits["train"].targets.tolist() == [[1, 0], [-1, -1], [0, 0], [0, 1]]
    assert dataset.notes == ("left out, skipped or not annotated: 2 tasks",)
    assert [int(dataset.splits["train"].images.load(row)[0, 0, 0]) for row in range(4)] == [0, 1, 2, 5]
    strict = open_tasks(folder, tasks, agreement="all")
    assert strict.labels == ("cat", "dog", "fox")
    assert strict.splits["train"].targets.tolist()[0] == [1, -1, -1]
    assert [problem.kind for problem in check_dataset(dataset).problems] == []


@pytest.mark.parametrize(
    "image",
    [
        "/data/local-files/?d=photos/1%20a.png",
        "/data/local-files/?d=somewhere/else/photos/1 a.png",
        "/data/upload/3/1f2e3d4c-1%20a.png",
        "https://host.example/files/1%20a.png?token=5",
        "s3://bucket/photos/1 a.png",
        "1 a.png",
    ],
)
def test_ways_to_name_an_image(folder: Path, image: str) -> None:
    dataset = open_tasks(folder, [task(1, image, chosen("cat"))])
    assert int(dataset.splits["train"].images.load(0)[0, 0, 0]) == 1


def test_an_uploaded_file_keeps_its_code_where_it_has_one(folder: Path) -> None:
    save_small_image(folder / "media" / "1f2e3d4c-1 a.png", 99)
    dataset = open_tasks(folder, [task(1, "/data/upload/3/1f2e3d4c-1%20a.png", chosen("cat"))])
    assert int(dataset.splits["train"].images.load(0)[0, 0, 0]) == 99


def test_the_short_form(folder: Path) -> None:
    rows = [
        {
            "image": "photos/0 a.png",
            "id": 1,
            "labels": {"choices": ["cat", "dog"]},
            "annotator": 1,
            "lead_time": 2.5,
        },
        {"image": "photos/0 a.png", "id": 1, "labels": "cat", "annotator": 2, "updated_at": "2026-01-01"},
        {"image": "photos/1 a.png", "id": 2, "annotator": 1},
        {"image": "photos/2 a.png", "id": 3, "boxes": [{"x": 1, "rectanglelabels": ["dog"]}], "annotator": 1},
    ]
    dataset = open_tasks(folder, rows)
    assert dataset.labels == ("cat", "dog")
    assert dataset.splits["train"].targets.tolist() == [[1, -1], [0, 0], [0, 1]]


def test_regions_controls_splits_and_the_labeling_interface(folder: Path) -> None:
    box = {"type": "rectanglelabels", "from_name": "box", "value": {"x": 1, "rectanglelabels": ["dog"]}}
    path = {"type": "taxonomy", "from_name": "kind", "value": {"taxonomy": [["animal", "cat"]]}}
    tasks = [
        task(1, "photos/0 a.png", {"result": [box, path]}, split="Train", group="p1"),
        task(2, "photos/1 a.png", {"result": [box]}, split="test", group="p2", unknown_labels=["cat"]),
    ]
    (folder / "label_config.xml").write_text(
        '<View><Image name="image" value="$image"/><Choices name="labels" toName="image" choice="multiple">'
        '<Choice value="zebra"/><Choice value="Dog" alias="dog"/></Choices></View>'
    )
    dataset = open_tasks(folder, tasks)
    assert dataset.labels == ("zebra", "dog", "animal", "cat")
    assert dataset.splits["train"].targets.tolist() == [[0, 1, 1, 1]]
    assert dataset.splits["test"].targets.tolist() == [[0, 1, 0, -1]]
    assert dataset.splits["test"].groups.tolist() == ["p2"]
    boxes = open_tasks(folder, tasks, control="box", label_names="dog,cat", unlisted="unknown")
    assert boxes.splits["train"].targets.tolist() == [[1, -1]]


@pytest.mark.parametrize(
    ("tasks", "options", "message"),
    [
        ({"a": 1}, {}, "not a list of tasks; export the project as JSON or JSON-MIN"),
        ([], {}, "has no task"),
        ([task(9, "photos/0 a.png")], {}, r"no annotated task \(1 without annotation\)"),
        ([task(9, "no picture", chosen("cat"))], {}, r"task 9: its data names no image; .*image_key"),
        ([task(9, "a.png", chosen("cat"))], {"image_key": "img"}, "task 9: its data has no 'img'"),
        (
            [task(9, "gone.png", chosen("cat"))],
            {},
            "none of the 1 images named in .*export.json exists below",
        ),
        ([task(9, "0 a.png", chosen("cat"))], {"label_names": "cta"}, r"'cat', which is not .*'cta'"),
        ([task(9, "0 a.png", chosen("cat"), split="fold1")], {}, "has the split 'fold1'"),
        ([task(9, "0 a.png", chosen())], {}, "no image has a label"),
    ],
)
def test_what_cannot_be_used(folder: Path, tasks: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        open_tasks(folder, tasks, **options)
