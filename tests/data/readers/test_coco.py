"""COCO's format with other categories: one file or one per split, ids with gaps, crowds, missing files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kmcl.data import open_dataset
from kmcl.data.check import check_spec
from kmcl.data.describe import describe
from kmcl.errors import InputError
from miniature_datasets import coco_annotation as annotation
from miniature_datasets import write_coco
from small_images import save_small_image


def test_one_file_with_gaps_crowds_strays_and_images_without_annotation(tmp_path: Path) -> None:
    path = write_coco(
        tmp_path / "annotations.json",
        {50: "b.png", 4: "a.png", 11: "gone.png", 12: "c.png"},
        [
            annotation(4, 40, iscrowd=1, segmentation={"counts": [1, 2], "size": [6, 8]}),
            annotation(50, 3, segmentation=[[1.0, 2.0, 3.0]]),
            annotation(50, 3),
            annotation(50, 40),
            annotation(11, 7),
            annotation(999, 7),
        ],
    )
    for number, name in enumerate("abc"):
        save_small_image(tmp_path / "photos" / f"{name}.png", number)
    dataset = open_dataset(f"coco:{path}", val_fraction=0, test_fraction=0)
    train = dataset.splits["train"]
    assert dataset.name == tmp_path.name
    assert dataset.labels == ("dog", "kite", "boat")
    assert train.targets.tolist() == [[1, 0, 1], [0, 0, 1], [0, 1, 0], [0, 0, 0]]
    assert train.images.load(1)[0, 0].tolist() == [0, 0, 77]
    assert dataset.notes == (
        f"images were looked for by name in {tmp_path}: 'b.png' is photos/b.png",
        "annotations.json: 1 annotations are of images that it does not list",
    )
    assert describe(dataset).splits[0].num_unlabelled == 1
    report = check_spec(f"coco:{path}", {"val_fraction": 0, "test_fraction": 0})
    assert [problem.kind for problem in report.problems] == ["unreadable image"]
    assert "gone.png does not exist" in report.problems[0].message
    unknown = open_dataset(f"coco:{path}", val_fraction=0, test_fraction=0, unlisted="unknown")
    assert unknown.splits["train"].targets.tolist()[0] == [1, -1, 1]
    drawn = open_dataset(f"coco:{path}", val_fraction=0.25, test_fraction=0.25)
    assert {name: len(split) for name, split in drawn.splits.items()} == {"train": 2, "val": 1, "test": 1}


@pytest.mark.parametrize(
    ("annotations", "folders"),
    [
        (["train/_annotations.coco.json", "valid/_annotations.coco.json"], ["train", "valid"]),
        (
            ["annotations/instances_train2017.json", "annotations/instances_val2017.json"],
            ["train2017", "val2017"],
        ),
        (["my_train.json", "my-val.json"], ["images/train", "images/val"]),
    ],
)
def test_a_file_per_split_with_images_of_the_same_name(
    tmp_path: Path, annotations: list[str], folders: list[str]
) -> None:
    for number, (path, folder) in enumerate(zip(annotations, folders, strict=True)):
        write_coco(tmp_path / path, {1: "1.png"}, [annotation(1, (3, 7)[number])])
        save_small_image(tmp_path / folder / "1.png", number)
    (tmp_path / Path(annotations[0]).parent / "captions_train2017.json").write_text('{"images": 1}')
    splits = open_dataset(f"coco:{tmp_path}", val_fraction=0).splits
    assert {name: split.targets.tolist() for name, split in splits.items()} == {
        "train": [[1, 0, 0]],
        "val": [[0, 1, 0]],
    }
    assert [int(split.images.load(0)[0, 0, 0]) for split in splits.values()] == [0, 1]


def test_a_single_file_is_divided_whatever_it_is_called(tmp_path: Path) -> None:
    folder = tmp_path / "test"
    write_coco(folder / "test_tubes.json", {1: "1.png"}, [annotation(1, 3)])
    save_small_image(folder / "1.png", 1)
    assert list(open_dataset(f"coco:{folder}", val_fraction=0, test_fraction=0).splits) == ["train"]


def test_files_by_option_with_other_ids_and_other_categories(tmp_path: Path) -> None:
    first = write_coco(tmp_path / "a.json", {1: "1.png"}, [annotation(1, 3)])
    other = [{"id": 1, "name": "dog"}, {"id": 2, "name": "fox"}]
    write_coco(tmp_path / "b.json", {1: "2.png"}, [annotation(1, 2)], other)
    for number in (1, 2):
        save_small_image(tmp_path / "elsewhere" / f"{number}.png", number)
    for spec, options in ((f"coco:{tmp_path}", {"train": "a.json"}), (f"coco:{first}", {})):
        dataset = open_dataset(spec, test="b.json", images="elsewhere", val_fraction=0, **options)
        assert dataset.labels == ("dog", "kite", "boat", "fox")
        # A category that a file does not have was not annotated there.
        assert dataset.splits["train"].targets.tolist() == [[1, 0, 0, -1]]
        assert dataset.splits["test"].targets.tolist() == [[0, -1, -1, 1]]
    with pytest.raises(InputError, match=r"is the file for train, and train=a\.json is another"):
        open_dataset(f"coco:{first}", train="a.json")
    with pytest.raises(InputError, match=r"holds a\.json, b\.json; say which are which with -o train=FILE"):
        open_dataset(f"coco:{tmp_path}")


def test_categories_of_one_name_groups_without_annotation_and_absent_lists(tmp_path: Path) -> None:
    categories = [
        {"id": 0, "name": "pets", "supercategory": "none"},
        {"id": 1, "name": "dog", "supercategory": "pets"},
        {"id": 5, "name": "dog", "supercategory": "pets"},
        {"id": 2, "name": "cat", "supercategory": "pets"},
    ]
    path = write_coco(
        tmp_path / "x.json", {1: "1.png", 2: "2.png"}, [annotation(1, 5), annotation(2, 2)], categories
    )
    content = json.loads(path.read_text())
    content["images"][1]["neg_category_ids"] = [1]
    path.write_text(json.dumps(content))
    save_small_image(tmp_path / "1.png", 1)
    dataset = open_dataset(f"coco:{path}", val_fraction=0, test_fraction=0)
    assert dataset.labels == ("dog", "cat")
    # The second image says only of one of the two categories called dog that it is absent.
    assert dataset.splits["train"].targets.tolist() == [[1, 0], [-1, 1]]
    assert dataset.notes == (
        "several categories are called 'dog': they are one label",
        "category 'pets' only groups others and has no annotation: left out",
    )


def test_all_annotations_of_other_categories_are_named(tmp_path: Path) -> None:
    annotations = [annotation(1, category, id=10 + category) for category in (1, 7, 8, 2)]
    path = write_coco(tmp_path / "a.json", {1: "1.png"}, annotations, [{"id": 1, "name": "cat"}])
    for _ in range(2):  # nothing of it is cached
        report = check_spec(f"coco:{path}", {})
        messages = [problem.message for problem in report.problems]
        assert [message.partition(",")[0] for message in messages] == [
            f"annotation {10 + category}: has the category {category}" for category in (7, 8, 2)
        ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not readable JSON"),
        ('{"images": []}', "lack the expected images, annotations and categories"),
        ('{"images": [], "annotations": [], "categories": []}', "list no image"),
        (
            (
                '{"images": [{"id": 1, "file_name": "1.png"}], "categories": [{"id": 1, "name": "a"}], '
                '"annotations": [{"id": 8, "image_id": 1, "category_id": 2}]}'
            ),
            "annotation 8: has the category 2, which is not in the list",
        ),
        (
            (
                '{"images": [{"id": 1, "file_name": "9.png"}], "categories": [{"id": 1, "name": "a"}], '
                '"annotations": [{"image_id": 1, "category_id": 1}]}'
            ),
            r"none of the 1 images named in .*x\.json exists below .*; the first is '9\.png'; name their",
        ),
        (
            (
                '{"images": [{"id": 1, "file_name": "1.png"}, {"id": 1, "file_name": "2.png"}], '
                '"categories": [], "annotations": []}'
            ),
            "two images or two categories have the same id",
        ),
    ],
)
def test_what_cannot_be_used(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "x.json").write_text(content)
    save_small_image(tmp_path / "1.png", 1)
    with pytest.raises(InputError, match=message) as caught:
        open_dataset(f"coco:{tmp_path / 'x.json'}")
    assert str(tmp_path / "x.json") in str(caught.value)


def test_images_that_fit_equally_well(tmp_path: Path) -> None:
    path = write_coco(tmp_path / "x.json", {1: "1.png"}, [annotation(1, 3)])
    for number, folder in enumerate(("a", "b")):
        save_small_image(tmp_path / folder / "1.png", number)
    with pytest.raises(InputError, match=r"may be a/1\.png or b/1\.png .*-o images=FOLDER"):
        open_dataset(f"coco:{path}")
    save_small_image(tmp_path / "1.png", 7)
    images = open_dataset(f"coco:{path}", images="b", val_fraction=0, test_fraction=0).splits["train"].images
    assert int(images.load(0)[0, 0, 0]) == 1
