"""The names that splits have in tables, folders and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import SPLIT_NAMES, Split
from kmcl.data.readers.options import DrawOptions
from kmcl.data.readers.row_problems import RowError, RowProblem, refuse_rows
from kmcl.data.selection import divide_in_place, select, select_parts
from kmcl.data.splitting import draw_splits
from kmcl.errors import suggest

SPLIT_SPELLINGS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "val"),
    **dict.fromkeys(("test", "testing"), "test"),
}


def split_in_name(name: str) -> str | None:
    """The split that a file is named after: `instances_train2017.json`, `test-00000-of-00001.parquet`."""
    found = {SPLIT_SPELLINGS[word] for word in re.findall("[a-z]+", name.lower()) if word in SPLIT_SPELLINGS}
    return found.pop() if len(found) == 1 else None


def split_of_file(path: Path, root: Path) -> str | None:
    """The split that a file below a folder is named after, or else the folder it is in."""
    folder = "" if path.parent == root else path.parent.name.lower()
    return split_in_name(path.stem) or SPLIT_SPELLINGS.get(folder)


def divide(everything: Split, names: Sequence[str], options: DrawOptions, source: str) -> dict[str, Split]:
    """The splits that the source names for its images; drawn where it names none.

    names: for each image train, val, test or another spelling of them; "" for none
    """
    if not any(names):
        return draw_splits(everything, options)
    expected = "expected train, val or test for every image, or no split at all"
    problems = [
        RowProblem(
            row,
            f"has the split {name!r}{suggest(name, SPLIT_SPELLINGS)}, {expected}",
            f"images have other splits, {expected}",
            name,
            place=f"image {everything.images.name(row)}",
        )
        for row, name in enumerate(names)
        if name.lower() not in SPLIT_SPELLINGS
    ]
    if problems:
        refuse_rows(RowError(source, problems))
        kept = np.setdiff1d(np.arange(len(names)), [problem.line for problem in problems])
        everything, names = select(everything, kept), [names[row] for row in kept]
    return given_splits(everything, [SPLIT_SPELLINGS[name.lower()] for name in names])


def given_splits(everything: Split, names: Sequence[str], *, in_place: bool = False) -> dict[str, Split]:
    """The rows of each split; `names` has train, val or test for each row.

    in_place: reorder the targets instead of copying them, see `divide_in_place`
    """
    return numbered_splits(everything, np.array([*map(SPLIT_NAMES.index, names)]), in_place=in_place)


def numbered_splits(
    everything: Split, part_of_row: npt.NDArray[np.int64], *, in_place: bool = False
) -> dict[str, Split]:
    """As `given_splits`, with the place of each row's split in SPLIT_NAMES instead of its name."""
    parts = (divide_in_place if in_place else select_parts)(everything, part_of_row, len(SPLIT_NAMES))
    return {name: part for name, part in zip(SPLIT_NAMES, parts, strict=True) if len(part)}
