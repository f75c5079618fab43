"""NIH ChestX-ray14 (Wang et al. 2017): 112,120 X-rays, 14 findings, the official lists of train+val and test.

    Data_Entry_2017*.csv  train_val_list.txt  test_list.txt  images_001/images/*.png ... images_012/

The findings are in one column separated by "|", "No Finding" for none. `val` is split from the training list
by patient, so that no patient's images are in two splits.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from kmcl.data.dataset import Dataset, Split
from kmcl.data.files import ImageFiles, require_file, require_folder
from kmcl.data.readers.options import CutOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.row_problems import RowError, RowProblem, refuse_rows
from kmcl.data.splitting import finish_splits
from kmcl.errors import InputError, suggest

FINDINGS = (
    "Atelectasis",
    "Cardiomegaly",
    "Effusion",
    "Infiltration",
    "Mass",
    "Nodule",
    "Pneumonia",
    "Pneumothorax",
    "Consolidation",
    "Edema",
    "Emphysema",
    "Fibrosis",
    "Pleural_Thickening",
    "Hernia",
)
POSITIONS = {name: index for index, name in enumerate(FINDINGS)}
NO_FINDING = "No Finding"
USED_COLUMNS = ("Image Index", "Finding Labels", "Patient ID")
LIST_OF_SPLIT = {"train": "train_val_list.txt", "test": "test_list.txt"}


class ChestXrayOptions(CutOptions):
    """Options of `chestxray14:`.

    missing: how to handle listed images that are not on disk: raise an error, or drop them (the archive
             comes in twelve parts).
    """

    missing: Literal["error", "drop"] = "error"


@dataclass(frozen=True)
class Entry:
    """One row of the label file."""

    line: int
    patient: str
    findings: tuple[int, ...]


def read_chestxray14(folder: Path, options: ChestXrayOptions) -> Dataset:
    """Read the dataset from the folder that holds the label file and the two lists."""
    require_folder(folder, "ChestX-ray14 folder")
    found = sorted(folder.glob("Data_Entry_2017*.csv"))
    if not found:
        raise InputError(f"ChestX-ray14 folder {folder} holds no Data_Entry_2017*.csv")
    entries = _read_entries(found[-1])
    places = dict(_find_images(folder))
    splits = {}
    for name, list_name in LIST_OF_SPLIT.items():
        path = require_file(folder / list_name, "ChestX-ray14 list")
        split = _read_split(folder, path, entries, places, options.missing)
        if split is not None:
            splits[name] = split
    if not splits:
        raise InputError(f"ChestX-ray14 folder {folder}: no listed image is on disk")
    return Dataset("chestxray14", FINDINGS, finish_splits(splits, options))


def _read_entries(path: Path) -> dict[str, Entry | None]:
    """The rows of the label file by image name; None for a row that cannot be used.

    Its header has fewer fields than its rows: `OriginalImage[Width,Height]` contains a comma, and a trailing
    comma opens a column without a name. Only columns before these are used.
    """
    entries: dict[str, Entry | None] = {}
    problems: list[RowProblem] = []
    with path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        rows = csv.reader(file)
        try:
            header = [cell.strip() for cell in next(rows, [])]
            for name in USED_COLUMNS:
                if name not in header:
                    raise InputError(f"label file {path} line 1: no column {name!r}")
            columns = [header.index(name) for name in USED_COLUMNS]
            for row in rows:
                if row:
                    _read_row(row, rows.line_num, columns, entries, problems)
        except csv.Error as error:
            raise InputError(f"label file {path} line {rows.line_num}: {error}") from error
    if problems:
        refuse_rows(RowError(path, problems))
    if not entries:
        raise InputError(f"label file {path} has no rows")
    return entries


def _read_row(
    row: list[str],
    line: int,
    columns: list[int],
    entries: dict[str, Entry | None],
    problems: list[RowProblem],
) -> None:
    if len(row) <= max(columns):
        problems.append(RowProblem(line, f"only {len(row)} values"))
        entries.update((row[column].strip(), None) for column in columns[:1] if column < len(row))
        return
    image, labels, patient = (row[column].strip() for column in columns)
    findings = [name.strip() for name in labels.split("|") if name.strip() not in ("", NO_FINDING)]
    unknown = [name for name in findings if name not in POSITIONS]
    if unknown:
        near = suggest(unknown[0], FINDINGS)
        problems.append(
            RowProblem(line, f"unknown finding {unknown[0]!r}{near}", "unknown findings", unknown[0])
        )
        entries[image] = None
    else:
        entries[image] = Entry(line, patient, tuple(POSITIONS[name] for name in findings))


def _find_images(folder: Path) -> Iterator[tuple[str, str]]:
    """Each image's name with its path below the folder: images*/x.png or images*/images/x.png."""
    for top in sorted(folder.glob("images*")):
        for directory in (top, *sorted(path for path in top.glob("images*") if path.is_dir())):
            if directory.is_dir():
                prefix = directory.relative_to(folder).as_posix()
                with os.scandir(directory) as listing:
                    for item in listing:
                        if item.name.endswith(".png"):
                            yield item.name, f"{prefix}/{item.name}"


def _read_split(
    folder: Path, path: Path, entries: dict[str, Entry | None], places: dict[str, str], missing: str
) -> Split | None:
    lines = path.read_text("utf-8-sig", "replace").splitlines()
    numbered = [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]
    problems = [
        RowProblem(number, f"{name!r} is not in the label file", "images are not in the label file", name)
        for number, name in numbered
        if name not in entries
    ]
    if problems:
        refuse_rows(RowError(f"list {path}", problems))
    names = [name for _, name in numbered if entries.get(name) is not None]
    absent = [name for name in names if name not in places]
    if absent and missing == "error":
        raise InputError(
            f"list {path}: {len(absent)} of {len(names)} images are not in {folder}/images*, the first is "
            f"{absent[0]}; missing=drop continues without them"
        )
    names = [name for name in names if name in places]
    if not names:
        return None
    listed = [entry for name in names if (entry := entries[name]) is not None]
    targets = np.zeros((len(names), len(FINDINGS)), dtype=np.int8)
    for row, entry in enumerate(listed):
        targets[row, list(entry.findings)] = 1
    return Split(
        ImageFiles(folder, np.array([places[name] for name in names])),
        targets,
        groups=np.array([entry.patient for entry in listed]),
        lines=np.array([entry.line for entry in listed], dtype=np.int64),
    )


READER = Reader(read_chestxray14, ChestXrayOptions, place="the folder")
