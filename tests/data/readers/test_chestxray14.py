"""ChestX-ray14 in miniature: its header with commas inside names, its lists, folders and file formats."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data import open_dataset
from kmcl.data.check import check_spec
from kmcl.data.readers.chestxray14 import FINDINGS
from kmcl.errors import InputError
from miniature_datasets import write_chestxray14

ROWS = [
    ("00000001_000.png", "Cardiomegaly", 1),
    ("00000001_001.png", "Cardiomegaly|Emphysema", 1),
    ("00000002_000.png", "No Finding", 2),
    ("00000003_000.png", "Pleural_Thickening|Hernia|Mass", 3),
]


def test_findings_patients_and_lines(tmp_path: Path) -> None:
    write_chestxray14(tmp_path, ROWS, {"00000003_000.png"})
    dataset = open_dataset(f"chestxray14:{tmp_path}", val_fraction=0)
    assert dataset.labels == FINDINGS
    assert len(FINDINGS) == 14
    train, test = dataset.splits["train"], dataset.splits["test"]
    found = [[FINDINGS[label] for label in np.flatnonzero(targets)] for targets in train.targets]
    assert found == [["Cardiomegaly"], ["Cardiomegaly", "Emphysema"], []]
    assert set(np.flatnonzero(test.targets[0])) == {FINDINGS.index(n) for n in ROWS[3][1].split("|")}
    assert train.groups is not None
    assert train.groups.tolist() == ["1", "1", "2"]
    assert train.lines is not None
    assert train.lines.tolist() == [2, 3, 4]
    image = train.images.load(1)
    assert image.shape == (5, 6, 3)
    assert (image == 101).all()


def test_rgba_and_sixteen_bit_files_load_as_grey(tmp_path: Path) -> None:
    write_chestxray14(tmp_path, ROWS, {"00000003_000.png"})
    Image.new("RGBA", (6, 5), (100, 100, 100, 255)).save(tmp_path / "images_001/images/00000001_000.png")
    values = np.full((5, 6), 100 * 257, dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "images_002/images/00000001_001.png")
    train = open_dataset(f"chestxray14:{tmp_path}", val_fraction=0).splits["train"]
    assert (train.images.load(0) == 100).all()
    assert (train.images.load(1) == 100).all()


def test_the_check_names_wrong_rows_of_all_files_and_checks_the_other_images(tmp_path: Path) -> None:
    rows = [*ROWS, ("00000004_000.png", "Herniaa", 4), ("00000005_000.png", "Lump|Mass", 5)]
    write_chestxray14(tmp_path, rows, {"00000003_000.png"})
    with (tmp_path / "train_val_list.txt").open("a") as file:
        file.write("\n\n00000009_000.png\n")
    with (tmp_path / "test_list.txt").open("a") as file:
        file.write("00000008_000.png\n")
    (tmp_path / "images_001/images/00000001_000.png").write_bytes(b"no image")
    report = check_spec(f"chestxray14:{tmp_path}", {"val_fraction": 0})
    assert [(problem.line, Path(problem.file or "").name) for problem in report.problems] == [
        (6, "Data_Entry_2017_v2020.csv"),
        (7, "Data_Entry_2017_v2020.csv"),
        (7, "train_val_list.txt"),
        (2, "test_list.txt"),
        (2, ""),
    ]
    assert report.problems[-1].kind == "unreadable image"
    assert report.num_images == 4
    with pytest.raises(InputError) as caught:
        open_dataset(f"chestxray14:{tmp_path}")
    assert [line.partition(" ")[0] for line in str(caught.value).splitlines() if str(tmp_path) in line] == [
        f"{tmp_path}/Data_Entry_2017_v2020.csv:",
        "list",
        "list",
    ]


def test_validation_cut_keeps_patients_on_one_side(tmp_path: Path) -> None:
    rows = [
        (f"{patient:08}_{shot:03}.png", FINDINGS[patient % 3] if shot else "No Finding", patient)
        for patient in range(40)
        for shot in range(3)
    ]
    write_chestxray14(
        tmp_path, rows, {f"{patient:08}_{shot:03}.png" for patient in range(8) for shot in range(3)}
    )
    dataset = open_dataset(f"chestxray14:{tmp_path}", val_fraction=0.25)
    train, val = dataset.splits["train"], dataset.splits["val"]
    assert train.groups is not None
    assert val.groups is not None
    assert not set(train.groups) & set(val.groups)
    assert len(val) == 24
    assert len(dataset.splits["test"]) == 24


def test_missing_images_stop_or_are_dropped(tmp_path: Path) -> None:
    write_chestxray14(tmp_path, ROWS, {"00000003_000.png"})
    (tmp_path / "images_002/images/00000001_001.png").unlink()
    with pytest.raises(InputError, match=r"1 of 3 images .* 00000001_001\.png; missing=drop"):
        open_dataset(f"chestxray14:{tmp_path}", val_fraction=0)
    dataset = open_dataset(f"chestxray14:{tmp_path}", val_fraction=0, missing="drop")
    assert len(dataset.splits["train"]) == 2


def test_errors_name_file_and_line(tmp_path: Path) -> None:
    write_chestxray14(tmp_path, [*ROWS, ("00000004_000.png", "Cardiomegally", 4)], set())
    with pytest.raises(
        InputError, match=r"v2020\.csv line 6: unknown finding 'Cardiomegally' \(did you mean"
    ):
        open_dataset(f"chestxray14:{tmp_path}")
    write_chestxray14(tmp_path, ROWS, {"00000003_000.png"})
    with (tmp_path / "test_list.txt").open("a") as file:
        file.write("00000099_000.png\n")
    with pytest.raises(
        InputError, match=r"test_list\.txt line 2: '00000099_000\.png' is not in the label file"
    ):
        open_dataset(f"chestxray14:{tmp_path}", val_fraction=0)
    (tmp_path / "test_list.txt").unlink()
    with pytest.raises(InputError, match=r"test_list\.txt does not exist"):
        open_dataset(f"chestxray14:{tmp_path}", val_fraction=0)
    (tmp_path / "Data_Entry_2017_v2020.csv").write_text("Image,Labels\n")
    with pytest.raises(InputError, match="line 1: no column 'Image Index'"):
        open_dataset(f"chestxray14:{tmp_path}")
