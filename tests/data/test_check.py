"""Every fault that a dataset can have is found once, with its row, and a sound one has none."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data import open_dataset
from kmcl.data.check import CheckReport, check_dataset, check_spec
from kmcl.errors import InputError


def write_noise(path: Path, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


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
    write_noise(tmp_path / "a.png", 0)
    (tmp_path / "labels.csv").write_text(
        "image,cat\na.png,1\na.png,maybe\na.png,#\na.png,0\na.png,2\na.png,1\n"
    )
    report = check_spec(str(tmp_path / "labels.csv"), {})
    assert found(report) == [("unusable row", None, line) for line in (3, 4, 6)]
    (sentence,) = report.summary
    assert sentence.endswith("for unknown: 3 rows, such as 'maybe' (line 3) and '#' (line 4)")
    with pytest.raises(InputError, match="does not exist"):
        check_spec(str(tmp_path / "nothing.csv"), {})


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
