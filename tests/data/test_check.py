"""Every fault that a dataset can have is found once, with its row, and a sound one has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data import open_dataset
from kmcl.data.check import CheckReport, check_dataset, check_spec
from kmcl.data.readers.registry import read_usable_rows
from kmcl.data.readers.row_problems import RowError
from kmcl.errors import InputError


def write_noise(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def write_table(folder: Path, rows: list[str], num_images: int = 4) -> str:
    """The table's path; the images are 0.png, 1.png, ..."""
    for number in range(num_images):
        write_noise(folder / f"{number}.png", number)
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return str(folder / "labels.csv")


def found(report: CheckReport) -> list[tuple[str, str | None, int | None]]:
    return [(problem.kind, problem.split, problem.line) for problem in report.problems]


def test_every_fault_is_listed_by_line(tmp_path: Path) -> None:
    for number in range(6):
        write_noise(tmp_path / f"{number}.png", number)
    write_noise(tmp_path / "copy.bmp", 0)
    whole = (tmp_path / "5.png").read_bytes()
    (tmp_path / "5.png").write_bytes(whole[: len(whole) // 2])
    rows = [
        "image,split,group,cat,dog",
        "0.png,train,a,1,1",
        "1.png,train,b,1,0",
        "gone.png,train,c,0,1",
        "1.png,train,b,0,0",
        "2.png,val,d,1,1",
        "copy.bmp,val,e,1,0",
        "3.png,test,b,1,0",
        "5.png,test,f,0,0",
    ]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    report = check_spec(str(tmp_path / "labels.csv"), {})
    assert report.num_images == 8
    assert sorted(found(report), key=str) == sorted(
        [
            ("unreadable image", "train", 4),
            ("unreadable image", "test", 9),
            ("image in two splits", "val", 7),
            ("duplicate row", "train", 5),
            ("group in two splits", "test", 8),
            ("label without positive", "test", None),
        ],
        key=str,
    )
    messages = {problem.line: problem.message for problem in report.problems}
    assert "gone.png does not exist" in messages[4]
    assert "copy.bmp has the same content as" in messages[7]
    assert "other labels" in messages[5]
    assert "group 'b' has images in train and in test" in messages[8]
    assert "'dog' has no positive in test" in messages[None]


def test_unusable_rows_are_all_listed_instead_of_the_first(tmp_path: Path) -> None:
    cells = ["1", "maybe", "#", "0", "2", "1", "0", "1"]
    rows = [f"{number}.png,train,{cell}" for number, cell in enumerate(cells)]
    path = write_table(tmp_path, ["image,split,cat", *rows], num_images=len(rows))
    report = check_spec(path, {"val_fraction": 0})
    assert found(report) == [("unusable row", None, line) for line in (3, 4, 6)]
    (sentence,) = report.summary
    assert sentence.endswith("for unknown: 3 rows, 'maybe' (line 3), '#' (line 4) and '2' (line 6)")
    assert report.num_images == 5
    with pytest.raises(InputError, match="does not exist"):
        check_spec(str(tmp_path / "nothing.csv"), {})


FAULTS = [
    "image,split,group,cat,dog",
    "0.png,train,a,1,0",
    "1.png,trian,a,1,0",  # 3: a split that is none
    "1.png,train,a,maybe,0",  # 4: no target
    "1.png,train,a,1",  # 5: a value is missing
    ",train,a,1,0",  # 6: no image
    "../1.png,train,a,1,0",  # 7: outside of the folder
    "gone.png,train,a,0,1",  # 8: not there
    "2.png,val,b,1,1",
    "3.png,test,a,1,1",  # 10: of a group that is in train
]


def test_wrong_cells_of_all_stages_are_named_at_once(tmp_path: Path) -> None:
    report = check_spec(write_table(tmp_path, FAULTS), {})
    assert found(report) == [
        *(("unusable row", None, line) for line in (3, 4, 5, 6, 7)),
        ("unreadable image", "train", 8),
        ("group in two splits", "test", 10),
    ]
    assert report.num_images == 4
    for line, part in {
        3: "column 'split' holds 'trian' (did you mean 'train'?)",
        4: "column 'cat' holds 'maybe', expected 1, 0",
        5: "4 values where the header has 5",
        6: "column 'image' names no image",
        7: "image path '../1.png' leads outside the folder",
    }.items():
        (message,) = [problem.message for problem in report.problems if problem.line == line]
        assert part in message
    assert all(f"line {line}: " in report.summary[place] for place, line in enumerate((3, 4, 5, 6, 7)))
    assert report.summary[5:] == ("-o allow_outside=true accepts paths outside the folder",)


def test_training_refuses_what_the_check_lists(tmp_path: Path) -> None:
    path = write_table(tmp_path, FAULTS)
    with pytest.raises(RowError) as caught:
        open_dataset(path)
    assert str(caught.value) == "\n  ".join([f"{path} cannot be used:", *check_spec(path, {}).summary])


def test_the_other_rows_are_read_as_if_they_were_alone(tmp_path: Path) -> None:
    path = write_table(tmp_path, FAULTS)
    rest = read_usable_rows(path, {}).dataset
    (tmp_path / "labels.csv").write_text("\n".join([FAULTS[0], FAULTS[1], *FAULTS[7:]]))
    alone = open_dataset(path)
    assert rest.labels == alone.labels
    assert list(rest.splits) == list(alone.splits)
    for name, split in alone.splits.items():
        assert np.array_equal(rest.splits[name].targets, split.targets)
        assert rest.splits[name].groups.tolist() == split.groups.tolist()
        assert [rest.splits[name].images.name(row) for row in range(len(split))] == [
            split.images.name(row) for row in range(len(split))
        ]


def large_table(folder: Path, wrong: Callable[[int], bool]) -> str:
    """5,000 rows, of which some have no target."""
    rows = [
        f"{row % 4}.png,train,{'?!' if wrong(row) else row % 2},{1 if row else 'x!'}" for row in range(5000)
    ]
    return write_table(folder, ["image,split,cat,dog", *rows])


def test_one_wrong_cell_of_many_rows_is_found(tmp_path: Path) -> None:
    dataset, (error,), _ = read_usable_rows(large_table(tmp_path, lambda row: row == 3210), {})
    assert [problem.line for problem in error.problems] == [2, 3212]
    assert sum(map(len, dataset.splits.values())) == 4998


def test_thousands_of_wrong_cells_are_listed_and_summarised(tmp_path: Path) -> None:
    path = large_table(tmp_path, lambda row: row % 9 < 4)
    _, (error,), _ = read_usable_rows(path, {})
    assert len(error.problems) == 2224 + 1
    assert len(str(error)) < 600
    first, second = error.sentences(20)
    assert first.startswith("column 'cat' holds values other than")
    assert first.count("'?!' (line ") == 20
    assert "2,224 rows, such as '?!' (line 2), '?!' (line 3)" in first
    assert second.startswith("line 2: column 'dog' holds 'x!'")


def test_wrong_cells_of_twenty_columns_are_all_in_the_summary(tmp_path: Path) -> None:
    labels = [f"l{number}" for number in range(20)]
    rows = [["0.png", "train", *("!" if row == column else "1" for column in range(20))] for row in range(20)]
    path = write_table(tmp_path, [",".join(cells) for cells in [["image", "split", *labels], *rows]])
    report = check_spec(path, {"val_fraction": 0})
    assert len(report.summary) == 20
    assert all(f"line {row + 2}: column 'l{row}'" in report.summary[row] for row in range(20))


def test_rows_that_leave_no_dataset_are_listed_with_the_reason(tmp_path: Path) -> None:
    report = check_spec(write_table(tmp_path, ["image,cat", ",0", "0.png,1", "1.png,no!", "2.png,0"]), {})
    assert found(report) == [("unusable row", None, 2), ("unusable row", None, 4)]
    (note,) = report.notes
    assert note.startswith("the other rows were not checked: ")
    assert "too few for a split" in note


def test_a_column_that_is_no_label_does_not_hide_the_others(tmp_path: Path) -> None:
    rows = [f"{number}.png,train,{20 + number},{'!' if number == 2 else number % 2}" for number in range(4)]
    report = check_spec(write_table(tmp_path, ["image,split,age,cat", *rows]), {"val_fraction": 0})
    assert found(report) == [("unusable row", None, 2), ("unusable row", None, 4)]
    assert "column 'age' holds values other than" in report.problems[0].message
    assert report.num_images == 3


def test_sound_dataset_has_no_problem_and_progress_reaches_the_end() -> None:
    calls: list[tuple[int, int]] = []
    dataset = open_dataset("digits", size=300)
    report = check_dataset(dataset, progress=lambda done, total: calls.append((done, total)))
    assert report.problems == ()
    assert report.num_images == 450
    assert calls[-1] == (450, 450)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)


def test_several_threads_find_the_same(tmp_path: Path) -> None:
    for number in range(300):
        write_noise(tmp_path / f"{number}.png", number % 250)
    rows = [f"{number}.png,{'train' if number < 200 else 'test'},1" for number in range(300)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,split,a", *rows]))
    reports = [check_spec(str(tmp_path / "labels.csv"), {"val_fraction": 0}, count) for count in (1, 4)]
    assert reports[0] == reports[1]
    assert Counter(problem.kind for problem in reports[0].problems) == {"image in two splits": 50}
