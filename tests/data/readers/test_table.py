"""Tables that people write: both forms of labels, splits, groups, odd but harmless spellings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data import UNKNOWN, Dataset, open_dataset
from kmcl.errors import InputError

SHARED = Path(__file__).parents[3] / "../shared/data"


def write_images(folder: Path, count: int) -> list[str]:
    """Tiny images whose colour tells their number; returns their names."""
    (folder / "pics").mkdir(parents=True, exist_ok=True)
    names = [f"pics/{number}.png" for number in range(count)]
    for number, name in enumerate(names):
        Image.new("RGB", (3, 2), (number, 0, 0)).save(folder / name)
    return names


def write_table(folder: Path, header: str, rows: list[str], name: str = "labels.csv") -> Path:
    path = folder / name
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def red_values(dataset: Dataset, split: str) -> list[int]:
    part = dataset.splits[split]
    return [int(part.images.load(index)[0, 0, 0]) for index in range(len(part))]


def test_zero_one_columns_with_splits_and_all_spellings_of_values(tmp_path: Path) -> None:
    write_images(tmp_path, 6)
    rows = [
        "pics/0.png,train,1,0",
        "pics/1.png,Training,1.0,0.0",
        "pics/2.png,validation,true,FALSE",
        "pics/3.png,dev,,-1",
        "pics/4.png,test,NaN, 1 ",
        "pics/5.png,train,0,0",
    ]
    path = write_table(tmp_path, "image,split,cat,dog", rows)
    dataset = open_dataset(f"table:{path}")
    assert dataset.name == tmp_path.name
    assert dataset.labels == ("cat", "dog")
    assert {name: red_values(dataset, name) for name in dataset.splits} == {
        "train": [0, 1, 5],
        "val": [2, 3],
        "test": [4],
    }
    assert dataset.splits["train"].targets.tolist() == [[1, 0], [1, 0], [0, 0]]
    assert dataset.splits["val"].targets.tolist() == [[1, 0], [UNKNOWN, UNKNOWN]]
    assert dataset.splits["test"].targets.tolist() == [[UNKNOWN, 1]]
    lines = dataset.splits["train"].lines
    assert lines is not None
    assert lines.tolist() == [2, 3, 7]


@pytest.mark.parametrize("separator", ["|", ";"])
def test_column_of_names_with_a_guessed_separator(tmp_path: Path, separator: str) -> None:
    write_images(tmp_path, 4)
    rows = [
        f"pics/0.png\tdog{separator}cat\ttrain",
        "pics/1.png\tbig bird\ttrain",
        f"pics/2.png\t cat {separator} \ttest",
        "pics/3.png\t\ttest",
    ]
    path = write_table(tmp_path, "filename\tlabels\tsplit", rows, "a.tsv")
    dataset = open_dataset(str(path), val_fraction=0)
    assert dataset.labels == ("big bird", "cat", "dog")
    assert dataset.splits["train"].targets.tolist() == [[0, 1, 1], [1, 0, 0]]
    assert dataset.splits["test"].targets.tolist() == [[0, 1, 0], [0, 0, 0]]
    fixed = open_dataset(str(path), val_fraction=0, label_names="dog,cat,big bird")
    assert fixed.splits["train"].targets.tolist() == [[1, 1, 0], [0, 0, 1]]


def test_spreadsheet_oddities_are_accepted(tmp_path: Path) -> None:
    """A byte order mark, semicolons, Windows line ends and slashes, a blank line, trailing delimiters."""
    write_images(tmp_path, 2)
    content = '\ufeffImage;cat;"hot; dog";\r\npics\\0.png;1;0;\r\n\r\n"pics/1.png";0;1;\r\n'
    (tmp_path / "labels.csv").write_bytes(content.encode("utf-8"))
    dataset = open_dataset(str(tmp_path / "labels.csv"), val_fraction=0, test_fraction=0)
    assert dataset.labels == ("cat", "hot; dog")
    assert red_values(dataset, "train") == [0, 1]
    lines = dataset.splits["train"].lines
    assert lines is not None
    assert lines.tolist() == [2, 4]


def test_drawn_splits_keep_groups_together_and_labels_balanced(tmp_path: Path) -> None:
    names = write_images(tmp_path, 200)
    rows = [
        f"{name},p{number // 4},{number % 3 == 0:d},{number % 5 == 0:d}" for number, name in enumerate(names)
    ]
    path = write_table(tmp_path, "image,patient_id,a,b", rows)
    dataset = open_dataset(str(path), val_fraction=0.2, test_fraction=0.3)
    sizes = {name: len(split) for name, split in dataset.splits.items()}
    assert sum(sizes.values()) == 200
    assert abs(sizes["val"] - 40) <= 4
    assert abs(sizes["test"] - 60) <= 4
    groups = [set(split.groups.tolist()) for split in dataset.splits.values() if split.groups is not None]
    assert len(groups) == 3
    assert len(set.union(*groups)) == sum(len(part) for part in groups) == 50
    assert abs(dataset.splits["test"].targets[:, 0].sum() - 0.3 * 67) <= 3
    again = open_dataset(str(path), val_fraction=0.2, test_fraction=0.3)
    assert red_values(again, "val") == red_values(dataset, "val")
    other = open_dataset(str(path), val_fraction=0.2, test_fraction=0.3, seed=1)
    assert red_values(other, "val") != red_values(dataset, "val")


def test_missing_val_is_cut_from_train_only(tmp_path: Path) -> None:
    names = write_images(tmp_path, 60)
    rows = [f"{name},{'test' if number < 20 else 'train'},1" for number, name in enumerate(names)]
    dataset = open_dataset(str(write_table(tmp_path, "image,split,a", rows)))
    assert red_values(dataset, "test") == list(range(20))
    assert len(dataset.splits["val"]) == 4
    assert sorted(red_values(dataset, "train") + red_values(dataset, "val")) == list(range(20, 60))


@pytest.mark.parametrize("name", ["split", "patient", "unknown_labels"])
def test_a_column_that_is_named_as_a_label_is_nothing_else(tmp_path: Path, name: str) -> None:
    write_images(tmp_path, 4)
    path = write_table(tmp_path, f"image,{name},cat", [f"pics/{i}.png,{i % 2},{i // 2}" for i in range(4)])
    dataset = open_dataset(str(path), label_columns=[name, "cat"], val_fraction=0, test_fraction=0)
    assert dataset.labels == (name, "cat")
    assert dataset.splits["train"].targets.tolist() == [[0, 0], [1, 0], [0, 1], [1, 1]]
    assert dataset.splits["train"].groups is None


def test_columns_and_folders_can_be_named(tmp_path: Path) -> None:
    write_images(tmp_path / "data", 2)
    (tmp_path / "tables").mkdir()
    rows = ["0.png,x,1,0,44,one", "1.png,y,0,1,61,two"]
    path = write_table(tmp_path / "tables", "picture,fold,a,b,age,who", rows, "mine.csv")
    dataset = open_dataset(
        f"table:{path}",
        image_column="picture",
        images="../data/pics",
        label_columns=["b", "a"],
        group_column="who",
        val_fraction=0,
        test_fraction=0,
    )
    assert dataset.name == "mine"
    assert dataset.labels == ("b", "a")
    assert dataset.splits["train"].targets.tolist() == [[0, 1], [1, 0]]
    assert red_values(dataset, "train") == [0, 1]
    ignoring = open_dataset(
        f"table:{path}",
        image_column="picture",
        images="../data/pics",
        ignore_columns="age,who,fold",
        val_fraction=0,
        test_fraction=0,
    )
    assert ignoring.labels == ("a", "b")


def test_paths_outside_the_folder_need_permission(tmp_path: Path) -> None:
    write_images(tmp_path, 1)
    (tmp_path / "deep").mkdir()
    path = write_table(tmp_path / "deep", "image,a", ["../pics/0.png,1", f"{tmp_path}/pics/0.png,1"])
    dataset = open_dataset(str(path), allow_outside=True, val_fraction=0, test_fraction=0)
    assert [dataset.splits["train"].images.load(index).shape for index in range(2)] == [(2, 3, 3)] * 2


def test_absolute_paths_inside_the_folder_need_no_permission(tmp_path: Path) -> None:
    write_images(tmp_path / "real", 2)
    (tmp_path / "link").symlink_to(tmp_path / "real", target_is_directory=True)
    rows = [f"{tmp_path}/real/pics/0.png,1", f"{tmp_path}/link/../link/pics/1.png,1"]
    write_table(tmp_path / "real", "image,a", rows)
    options = {"val_fraction": 0, "test_fraction": 0}
    dataset = open_dataset(f"{tmp_path}/link/labels.csv", **options)
    assert red_values(dataset, "train") == [0, 1]
    with pytest.raises(InputError, match=r"line 3: image path .* leads outside"):
        open_dataset(f"{tmp_path}/real/labels.csv", **options)


@pytest.mark.parametrize(
    ("name", "num_labels", "sizes", "per_image"),
    [("coco18", 18, (5253, 747, 1500), 2.05), ("nih14", 14, (3502, 530, 967), 0.68)],
)
def test_real_tables(name: str, num_labels: int, sizes: tuple[int, int, int], per_image: float) -> None:
    path = SHARED / name / "labels.csv"
    if not path.exists():
        pytest.skip(f"{path} is not at hand")
    dataset = open_dataset(f"table:{path}")
    assert dataset.name == name
    assert dataset.num_labels == num_labels
    assert tuple(len(dataset.splits[split]) for split in ("train", "val", "test")) == sizes
    targets = np.concatenate([split.targets for split in dataset.splits.values()])
    assert abs(targets.sum() / len(targets) - per_image) < 0.01
    image = dataset.splits["val"].images.load(0)
    assert image.dtype == np.uint8
    assert max(image.shape[:2]) == 256
