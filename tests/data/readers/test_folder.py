"""A folder per label: images in several of them, splits above, nested and empty folders, other files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kmcl.data import Dataset, open_dataset
from kmcl.data.check import check_dataset
from kmcl.errors import InputError
from small_images import save_small_image

WHOLE = {"val_fraction": 0, "test_fraction": 0}


def labels_by_image(dataset: Dataset, split: str = "train") -> dict[int, set[str]]:
    """The labels of each image of `small_images`, by its number."""
    part = dataset.splits[split]
    return {
        int(part.images.load(row)[0, 0, 0]): {
            label for label, target in zip(dataset.labels, part.targets[row], strict=True) if target == 1
        }
        for row in range(len(part))
    }


def test_the_same_content_in_several_folders_has_several_labels(tmp_path: Path) -> None:
    save_small_image(tmp_path / "cat" / "1.png", 1)
    save_small_image(tmp_path / "dog" / "other name.png", 1)
    save_small_image(tmp_path / "dog" / "1.png", 2)
    os.link(tmp_path / "dog" / "1.png", tmp_path / "cat" / "linked.png")
    save_small_image(tmp_path / "red fox" / "3.PNG", 3)
    save_small_image(tmp_path / "_none" / "4.png", 4)
    dataset = open_dataset(f"folder:{tmp_path}", **WHOLE)
    assert dataset.labels == ("cat", "dog", "red fox")
    assert labels_by_image(dataset) == {1: {"cat", "dog"}, 2: {"cat", "dog"}, 3: {"red fox"}, 4: set()}
    assert dataset.name == tmp_path.name
    assert dataset.notes == ()


def test_splits_above_with_other_spellings(tmp_path: Path) -> None:
    for number, place in enumerate(("Train/cat", "Train/dog", "valid/dog", "test/dog")):
        save_small_image(tmp_path / place / "1.png", number)
    save_small_image(tmp_path / "Train" / "loose.png", 9)
    save_small_image(tmp_path / "test" / "cat" / "again.png", 3)
    dataset = open_dataset(f"folder:{tmp_path}")
    assert dataset.labels == ("cat", "dog")
    assert labels_by_image(dataset) == {0: {"cat"}, 1: {"dog"}}
    assert labels_by_image(dataset, "val") == {2: {"dog"}}
    assert labels_by_image(dataset, "test") == {3: {"cat", "dog"}}
    assert dataset.notes == ("left out, not in the folder of a label: Train/loose.png",)
    assert {problem.kind for problem in check_dataset(dataset).problems} == {"label without positive"}


def test_a_train_beside_a_bus_is_a_label(tmp_path: Path) -> None:
    for number, label in enumerate(("bus", "train")):
        save_small_image(tmp_path / label / "1.png", number)
    assert open_dataset(f"folder:{tmp_path}", **WHOLE).labels == ("bus", "train")


@pytest.mark.parametrize(
    ("nested", "labels"), [("first", {"animal"}), ("last", {"dog"}), ("all", {"animal", "dog"})]
)
def test_nested_folders(tmp_path: Path, nested: str, labels: set[str]) -> None:
    save_small_image(tmp_path / "animal" / "dog" / "1.png", 1)
    dataset = open_dataset(f"folder:{tmp_path}", nested=nested, **WHOLE)
    assert labels_by_image(dataset) == {1: labels}


def test_other_files_and_empty_folders_are_listed(tmp_path: Path) -> None:
    save_small_image(tmp_path / "cat" / "1.png", 1)
    save_small_image(tmp_path / "loose.png", 2)
    (tmp_path / "dog" / "puppies").mkdir(parents=True)
    for name in ("notes.txt", "cat/a.txt", "cat/b.json", "cat/c.docx", ".hidden"):
        (tmp_path / name).write_text("x")
    dataset = open_dataset(f"folder:{tmp_path}", **WHOLE)
    assert dataset.labels == ("cat",)
    assert dataset.notes == (
        "left out, no images: cat/a.txt, cat/b.json, cat/c.docx and 1 more",
        "left out, not in the folder of a label: loose.png",
        "empty folders: dog/puppies",
    )
    assert check_dataset(dataset).notes == dataset.notes


def test_a_folder_without_labels(tmp_path: Path) -> None:
    save_small_image(tmp_path / "1.png", 1)
    with pytest.raises(InputError, match="holds no folder with images; each label needs one"):
        open_dataset(f"folder:{tmp_path}")
    with pytest.raises(InputError, match=r"gone does not exist"):
        open_dataset(f"folder:{tmp_path / 'gone'}")


def test_linked_folders_are_followed_once(tmp_path: Path) -> None:
    save_small_image(tmp_path / "elsewhere" / "1.png", 1)
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (tmp_path / "photos" / "cat" / "round").symlink_to(tmp_path / "photos", target_is_directory=True)
    assert labels_by_image(open_dataset(f"folder:{tmp_path / 'photos'}", **WHOLE)) == {1: {"cat"}}
