"""YOLO's label files: data.yaml in its variants, missing and empty label files, wrong class numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from kmcl.data import open_dataset
from kmcl.data.check import check_spec
from kmcl.data.readers.row_problems import RowError
from kmcl.errors import InputError
from miniature_datasets import write_yolo
from small_images import save_small_image


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "pets"
    write_yolo(root)
    return root


@pytest.mark.parametrize(
    "description",
    [
        "path: .\ntrain: images/train\nval: images/val\nnames: [cat, dog, fox]\nnc: 3\n",
        "path: /content/pets\ntrain: images/train\nval: images/val\ntest:\nnames: {0: cat, 1: dog, 2: fox}\n",
        "train: ../images/train\nval: [../images/val]\ntest: ../images/test\nnames: ['cat', 'dog', 'fox']\n",
        "train: lists/train.txt\nvalid: images/val\nnames: [cat, dog, fox]\n",
    ],
    ids=["plain", "another machine", "roboflow", "lists"],
)
def test_descriptions(folder: Path, description: str) -> None:
    write(folder / "data.yaml", description)
    write(folder / "other.yaml", "lr: 0.1\n")
    lines = [f"./images/train/{name}.png" for name in ("1", "3", "deep/2")]
    write(folder / "lists/train.txt", "\n".join(lines) + "\n")
    for spec in (f"yolo:{folder}", f"yolo:{folder / 'data.yaml'}"):
        dataset = open_dataset(spec, val_fraction=0)
        assert dataset.name == "pets"
        assert dataset.labels == ("cat", "dog", "fox")
        assert dataset.splits["train"].targets.tolist() == [[1, 1, 0], [0, 0, 0], [0, 0, 0]]
        assert dataset.splits["val"].targets.tolist() == [[0, 0, 1]]
        assert int(dataset.splits["train"].images.load(0)[0, 0, 0]) == 0
        assert "test" not in dataset.splits
    kinds = {problem.kind for problem in check_spec(f"yolo:{folder}", {}).problems}
    assert kinds == {"label without positive"}


def test_the_check_names_all_wrong_lines_and_checks_the_other_images(folder: Path) -> None:
    write(folder / "data.yaml", "train: images/train\nval: images/val\nnames: [cat, dog, fox]\n")
    write(folder / "labels/train/3.txt", "0 0 0 1 1\n3 0 0 1 1\nfox 0 0 1 1\n")
    write(folder / "labels/val/1.txt", "-1 0 0 1 1\n")
    save_small_image(folder / "images/val/2.png", 7)
    report = check_spec(f"yolo:{folder}", {"val_fraction": 0})
    assert report.num_images == 3
    messages = [problem.message for problem in report.problems if problem.kind == "unusable row"]
    assert len(messages) == 3
    for message, place in zip(
        messages, ("train/3.txt line 2", "train/3.txt line 3", "val/1.txt line 1"), strict=True
    ):
        assert f"{place}: '" in message
    with pytest.raises(RowError, match=r"3 places, such as '3' \(.*3\.txt line 2\) and 'fox' \("):
        open_dataset(f"yolo:{folder}")


def test_a_folder_with_classes(folder: Path) -> None:
    write(folder / "classes.txt", "cat\ndog\nfox\n")
    dataset = open_dataset(f"yolo:{folder}", val_fraction=0, test_fraction=0.25)
    assert dataset.labels == ("cat", "dog", "fox")
    assert sorted(len(split) for split in dataset.splits.values()) == [1, 3]


@pytest.mark.parametrize(
    ("description", "message"),
    [
        (
            "names: [cat]\ntrain: images/train\n",
            r"lines do not begin with the number of a class \(0 to 0\): 2 places, '1' \(.*1\.txt line 1\)",
        ),
        ("names: {1: cat}\ntrain: images/train\n", "names must be a list, or numbered from 0"),
        ("names: [cat, dog]\ntrain: images/nowhere\n", "train: images/nowhere does not exist"),
        ("names: [cat, dog]\n", "there is no image in"),
        ("- a\n", "has no names, train and val"),
        ("a: [", "cannot be read as YAML"),
    ],
)
def test_what_cannot_be_used(folder: Path, description: str, message: str) -> None:
    write(folder / "data.yaml", description)
    with pytest.raises(InputError, match=message):
        open_dataset(f"yolo:{folder / 'data.yaml'}")


def test_a_folder_without_description(folder: Path) -> None:
    with pytest.raises(InputError, match=r"does not hold one data\.yaml or classes\.txt$"):
        open_dataset(f"yolo:{folder}")
    for name in ("a.yaml", "b.yaml"):
        write(folder / name, "names: [cat]")
    with pytest.raises(InputError, match=r"but a\.yaml, b\.yaml$"):
        open_dataset(f"yolo:{folder}")
