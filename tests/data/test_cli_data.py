"""The commands: tables, JSON, figures, options and exit statuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from kmcl.cli.data import data_app
from kmcl.cli.data_arguments import parse_dataset_options
from kmcl.errors import InputError


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(data_app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_describe_prints_tables_or_json(tmp_path: Path) -> None:
    status, text = run("describe", "digits", "--option", "size=60", "--figures", str(tmp_path))
    assert status == 0
    for expected in ("train", "60", "without label", "seven", "strongest correlations", "width 64 to 64"):
        assert expected in text
    assert (tmp_path / "labels_per_image.png").exists()
    assert (tmp_path / "co_occurrence.png").exists()
    status, text = run("describe", "digits", "-o", "size=60", "-o", "subset=20", "--json")
    assert status == 0
    content = json.loads(text)
    assert content["splits"][0]["num_images"] == 20
    assert len(content["labels"]) == 10


def test_check_exit_status_says_whether_anything_is_wrong(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Image.new("RGB", (2, 2), (ord(name), 0, 0)).save(tmp_path / f"{name}.png")
    table = tmp_path / "labels.csv"
    table.write_text("image,split,cat\na.png,train,1\nb.png,val,1\nc.png,test,1\n")
    status, text = run("check", str(table))
    assert status == 0
    assert "3 images, nothing wrong" in text
    (tmp_path / "b.png").unlink()
    status, text = run("check", str(table))
    assert status == 1
    assert "unreadable image" in text
    assert "line 3" in text
    status, text = run("check", str(table), "--json")
    assert status == 1
    (problem,) = json.loads(text)["problems"]
    assert problem["line"] == 3
    assert problem["split"] == "val"


def test_check_names_the_rows_that_cannot_be_used_and_checks_the_others(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        Image.new("RGB", (2, 2), (ord(name), 0, 0)).save(tmp_path / f"{name}.png")
    table = tmp_path / "labels.csv"
    rows = ["a.png,train,1", "b.png,trian,1", "b.png,train,2", "c.png,test,0", "d.png,test,1"]
    table.write_text("\n".join(["image,split,cat", *rows]))
    status, text = run("check", str(table), "-o", "val_fraction=0")
    assert status == 2
    assert text.splitlines()[:3] == [
        f"{table}: 2 problems in rows that cannot be used",
        "  line 3: column 'split' holds 'trian' (did you mean 'train'?), expected train, val or test",
        "  line 4: column 'cat' holds '2', expected 1, 0, or blank or -1 for unknown",
    ]
    assert "the other rows: 1 problem" in text
    assert "line 6" in text
    table.write_text("\n".join(["image,split,cat", *rows[:-1]]))
    status, text = run("check", str(table), "-o", "val_fraction=0")
    assert status == 2
    assert "the other rows: 2 images, nothing wrong" in text
    table.write_text("\n".join(["image,split,cat", *(25 * ["a.png,train,!"]), *(30 * ["a.png,train,1"])]))
    status, text = run("check", str(table), "-o", "val_fraction=0")
    assert status == 2
    assert text.splitlines()[0].endswith("25 problems in rows that cannot be used")
    assert "25 rows, such as '!' (line 2), '!' (line 3)" in text
    assert text.splitlines()[2] == "  --json lists them all"


def test_bad_input_stays_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.csv does not exist"):
        run("check", str(tmp_path / "gone.csv"))
    with pytest.raises(InputError, match="'size' is not NAME=VALUE"):
        run("describe", "digits", "--option", "size")
    with pytest.raises(InputError, match="unknown option"):
        run("describe", "digits", "--option", "colour=red")


def test_options_keep_everything_after_the_first_equals_sign() -> None:
    assert parse_dataset_options(["separator==", "val-fraction=0.2"]) == {
        "separator": "=",
        "val_fraction": "0.2",
    }
    assert parse_dataset_options(None) == {}
