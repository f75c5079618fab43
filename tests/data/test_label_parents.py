"""Labels that imply others: filled in where absence is only not being named, refused where a cell says 0."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kmcl.data import Dataset, open_dataset
from kmcl.data.check import check_spec
from kmcl.data.label_parents import read_parents, with_parents
from kmcl.data.readers.row_problems import RowError
from kmcl.errors import InputError
from small_images import save_small_image

WHOLE: dict[str, object] = {"val_fraction": 0, "test_fraction": 0}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        save_small_image(tmp_path / f"{number}.png", number)
    (tmp_path / "tree.yaml").write_text("dog: mammal\ncat: [mammal, pet]\nmammal: animal\n")
    return tmp_path


def open_table(folder: Path, content: str, **options: object) -> Dataset:
    (folder / "labels.csv").write_text(content)
    return open_dataset(f"table:{folder / 'labels.csv'}", **{"parents": "tree.yaml", **WHOLE, **options})


def test_names_imply_parents_and_new_labels(folder: Path) -> None:
    content = "image,labels\n0.png,dog\n1.png,cat|animal\n2.png,rock\n"
    dataset = open_table(folder, content)
    assert dataset.labels == ("animal", "cat", "dog", "rock", "mammal", "pet")
    assert dataset.splits["train"].targets.tolist() == [
        [1, 0, 1, 0, 1, 0],
        [1, 1, 0, 0, 1, 1],
        [0, 0, 0, 1, 0, 0],
    ]
    assert dataset.notes == (
        "parents: 1 implied targets were filled in",
        "parents: mammal, pet became labels",
    )
    unknown = open_table(folder, content, unlisted="unknown").splits["train"]
    assert unknown.targets.tolist()[0] == [1, -1, 1, -1, 1, -1]


def test_cells_must_not_contradict_each_other(folder: Path) -> None:
    content = "image,animal,dog,cat\n0.png,,1,0\n1.png,0,,0\n2.png,1,0,\n"
    dataset = open_table(folder, content)
    assert dataset.labels == ("animal", "dog", "cat", "mammal", "pet")
    # The first image has an animal because of the dog, the second no dog because there is no animal.
    assert dataset.splits["train"].targets.tolist() == [[1, 1, 0, 1, 0], [0, 0, 0, 0, 0], [1, 0, -1, -1, -1]]
    wrong = content.replace("1.png,0,,0", "1.png,0,1,0")
    with pytest.raises(RowError, match=r"labels\.csv line 3: label 'dog' is present and 'animal', which it"):
        open_table(folder, wrong)
    report = check_spec(f"table:{folder / 'labels.csv'}", {"parents": "tree.yaml", **WHOLE})
    assert [(problem.kind, problem.line) for problem in report.problems] == [("unusable row", 3)]


def test_any_reader_takes_parents(folder: Path) -> None:
    for label, number in (("dog", 1), ("animal", 2)):
        save_small_image(folder / "photos" / label / "1.png", number)
    (folder / "photos" / "tree.yaml").write_text("dog: animal")
    dataset = open_dataset(f"folder:{folder / 'photos'}", parents="tree.yaml", **WHOLE)
    assert dataset.labels == ("animal", "dog")
    assert dataset.splits["train"].targets.tolist() == [[1, 0], [1, 1]]
    named = open_dataset("digits", size=30, parents={"two": ["even"], "four": "even"})
    assert named.labels[-1] == "even"
    train = named.splits["train"].targets
    np.testing.assert_array_equal(train[:, -1], train[:, [2, 4]].max(axis=1))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dog: mammal\nmammal: animal\nanimal: dog\n", "in a circle: 'dog' would imply itself"),
        ("- dog\n", r"tree\.yaml must name the parents of labels"),
        ("dog: {a: 1}\n", "parents of 'dog' must be a name or a list of names"),
        ("dgo: animal\n", r"parents are given of 'dgo', which is not a label \(did you mean 'dog'\?\)"),
        ("dog: [", r"tree\.yaml cannot be read as YAML"),
    ],
)
def test_what_cannot_be_used(folder: Path, content: str, message: str) -> None:
    (folder / "tree.yaml").write_text(content)
    with pytest.raises(InputError, match=message):
        open_table(folder, "image,labels\n0.png,dog\n")


def test_ignored_targets_keep_their_places(folder: Path) -> None:
    dataset = open_table(folder, "image,labels\n0.png,dog\n1.png,cat\n", parents=None)
    split = dataset.splits["train"]
    ignored = Dataset(
        "x", dataset.labels, {"train": type(split)(split.images, split.targets, split.targets == 1)}
    )
    filled = with_parents(ignored, read_parents({"dog": ["animal"]}, folder)).splits["train"]
    assert filled.ignored is not None
    assert filled.ignored.tolist() == [[False, True, False], [True, False, False]]
