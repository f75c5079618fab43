"""Atlas of Digital Pathology (Hosseini et al. 2019), release 1: histology patches with hierarchical labels.

    ADP V1.0 Release/
      ADP_EncodedLabels_Release1_Flat.csv     Patch Names, then a 0/1 column per code: E, E.M, E.M.S, ...
      img_res_1um_bicubic/*.png               the patches
      splits/{train,valid,test}.npy           row numbers of the CSV, from 0

A code names a path in the tree of tissue types. The levels follow from the codes in the header:

    L1   the nine roots                                             9 labels in the flat release
    L2   codes of two letters, and roots without children          19
    L3   the leaves                                                22
    L2+, L3+   a level together with its ancestors                 26, 33

The numbers agree with the lists that the release's authors publish. The paper counts 11 labels for L2 without
listing them; 11 is the number of inner nodes (33 - 22), and no reading of a level yields it. Nine, its level
of choice, and 22 agree.

The release is available on request only and was not available here: names of files and columns, the levels
and the meaning of the split files come from public code that reads it. Therefore variants are accepted too:
split lists as .npy, .csv or .txt, holding row numbers or patch names, and other resolutions of the image
folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from kmcl.data.dataset import Dataset, Split
from kmcl.data.files import ImageFiles, require_folder, require_some_images
from kmcl.data.readers.options import CutOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.table_rows import TableRows, read_rows
from kmcl.data.readers.table_targets import targets_from_columns
from kmcl.data.selection import select
from kmcl.data.splitting import cut_split, finish_splits
from kmcl.errors import InputError

NAME_COLUMN = "Patch Names"
FILES_OF_SPLIT = {"train": ("train",), "val": ("valid", "val"), "test": ("test",)}

Level = Literal["L1", "L2", "L2+", "L3", "L3+"]


class AdpOptions(CutOptions):
    """Options of `adp:`.

    level:         which labels: L1, L2, L3, or L2+ and L3+ with their ancestors.
    images:        the folder of patches within the release; default `img_res_1um_bicubic`, else `img_res_*`.
    test_fraction: the share of `test` if the release has no split files.
    """

    level: Level = "L1"
    images: str | None = None
    test_fraction: float = Field(default=0.1, ge=0.0, lt=1.0)


def codes_of_level(codes: list[str], level: Level) -> list[str]:
    """The codes that make up a level, in the order of the file."""
    depth = {code: code.count(".") + 1 for code in codes}
    parents = {code.rpartition(".")[0] for code in codes}

    def belongs(code: str, wanted: int) -> bool:
        return depth[code] == wanted or (depth[code] < wanted and code not in parents)

    own = int(level[1])
    levels = range(1, own + 1) if level.endswith("+") else (own,)
    return [code for code in codes if any(belongs(code, wanted) for wanted in levels)]


def read_adp(folder: Path, options: AdpOptions) -> Dataset:
    """Read the release from its folder, or from the one above it."""
    path = _find_table(folder)
    table = read_rows(path)
    if NAME_COLUMN not in table.header:
        raise InputError(f"ADP labels {path} line 1: no column {NAME_COLUMN!r}")
    codes = [name for name in table.header if name != NAME_COLUMN]
    labelled = targets_from_columns(table, codes_of_level(codes, options.level))
    root = path.parent
    images = ImageFiles(_find_images(root, options.images), np.array(table.column(NAME_COLUMN)))
    require_some_images(images, path)
    everything = Split(images, labelled.targets, lines=np.array(table.lines, dtype=np.int64))
    splits = _given_splits(root / "splits", table, everything)
    if not splits:
        train, test = cut_split(everything, (1 - options.test_fraction, options.test_fraction), options.seed)
        splits = {"train": train, "test": test} if len(test) else {"train": train}
    return Dataset(f"adp-{options.level.lower()}", labelled.labels, finish_splits(splits, options))


def _find_table(folder: Path) -> Path:
    require_folder(folder, "ADP folder")
    for pattern in ("ADP_EncodedLabels*Flat*.csv", "ADP_EncodedLabels*.csv"):
        found = sorted(folder.glob(pattern)) or sorted(folder.glob(f"*/{pattern}"))
        if found:
            return found[0]
    raise InputError(f"ADP folder {folder} holds no ADP_EncodedLabels_*.csv")


def _find_images(root: Path, chosen: str | None) -> Path:
    if chosen is not None:
        return require_folder(root / chosen, "ADP image folder")
    found = [root / "img_res_1um_bicubic", *sorted(root.glob("img_res_*"))]
    folder = next((path for path in found if path.is_dir()), None)
    if folder is None:
        raise InputError(f"ADP folder {root} holds no img_res_1um_bicubic; name the folder with images=...")
    return folder


def _given_splits(folder: Path, table: TableRows, everything: Split) -> dict[str, Split]:
    row_of_name = {name: row for row, name in enumerate(table.column(NAME_COLUMN))}
    splits = {}
    for split, stems in FILES_OF_SPLIT.items():
        candidates = [folder / f"{stem}{suffix}" for stem in stems for suffix in (".npy", ".csv", ".txt")]
        path = next((path for path in candidates if path.is_file()), None)
        if path is not None:
            splits[split] = select(everything, _read_rows_of_split(path, row_of_name))
    if splits and "train" not in splits:
        raise InputError(f"ADP folder {folder} has split files but none for train")
    return splits


def _read_rows_of_split(path: Path, row_of_name: dict[str, int]) -> npt.NDArray[np.int64]:
    """Row numbers from a split file, which holds such numbers or the names of patches."""
    if path.suffix == ".npy":
        try:
            entries = [str(entry) for entry in np.load(path, allow_pickle=False).reshape(-1)]
        except (OSError, ValueError) as error:
            raise InputError(f"ADP split {path} cannot be read: {error}") from error
    else:
        lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
        entries = [line.split(",")[0].strip() for line in lines if line.strip()]
        if entries and entries[0].lower() in (NAME_COLUMN.lower(), "name", "index"):
            entries.pop(0)
    rows = []
    for number, entry in enumerate(entries, 1):
        row = row_of_name.get(entry)
        if row is None and entry.isdecimal() and int(entry) < len(row_of_name):
            row = int(entry)
        if row is None:
            raise InputError(f"ADP split {path} entry {number}: {entry!r} is no patch of the label file")
        rows.append(row)
    if not rows:
        raise InputError(f"ADP split {path} is empty")
    return np.array(rows, dtype=np.int64)


READER = Reader(read_adp, AdpOptions, place="the release folder")
