"""A dataset written as files and opened again is the same dataset."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kmcl.cli.app import make_app
from kmcl.data import Dataset, Split, open_dataset
from kmcl.data.export import export_dataset
from kmcl.errors import InputError


def test_written_and_opened_again(tmp_path: Path):
    written = open_dataset("digits", size=30)
    table = export_dataset(written, tmp_path / "out")
    read = open_dataset(f"table:{table}")
    assert read.labels == written.labels
    assert read.splits.keys() == written.splits.keys()
    for name, split in written.splits.items():
        np.testing.assert_array_equal(read.splits[name].targets, split.targets)
        for index in range(len(split)):
            np.testing.assert_array_equal(read.splits[name].images.load(index), split.images.load(index))


def test_unknown_labels_stay_unknown(tmp_path: Path):
    source = open_dataset("digits", size=30).splits["train"]
    targets = source.targets.copy()
    targets[0, 0] = -1
    dataset = Dataset("partly", ("zero", *"abcdefghi"), {"train": Split(source.images, targets)})
    read = open_dataset(f"table:{export_dataset(dataset, tmp_path / 'out')}", val_fraction=0)
    np.testing.assert_array_equal(read.splits["train"].targets, targets)


def test_a_folder_with_files_is_left_alone(tmp_path: Path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="not empty"):
        export_dataset(open_dataset("digits", size=30), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_command(tmp_path: Path):
    arguments = ["data", "export", "digits", str(tmp_path / "out"), "-o", "size=30"]
    result = CliRunner().invoke(make_app(arguments), arguments)
    assert result.exit_code == 0, result.output
    assert "labels.csv" in result.output
    assert len(list((tmp_path / "out" / "images").glob("train-*.png"))) == 30
