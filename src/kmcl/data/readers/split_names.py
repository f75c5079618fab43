"""The names that splits have in tables, folders and files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kmcl.data.dataset import SPLIT_NAMES, Split
from kmcl.data.readers.options import DrawOptions
from kmcl.data.selection import select
from kmcl.data.splitting import draw_splits
from kmcl.errors import InputError, suggest

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
    for row, name in enumerate(names):
        if name.lower() not in SPLIT_SPELLINGS:
            image = everything.images.name(row)
            raise InputError(
                f"{source}: image {image} has the split {name!r}{suggest(name, SPLIT_SPELLINGS)}, expected "
                "train, val or test for every image, or no split at all"
            )
    return given_splits(everything, [SPLIT_SPELLINGS[name.lower()] for name in names])


def given_splits(everything: Split, names: Sequence[str]) -> dict[str, Split]:
    """The rows of each split; `names` has train, val or test for each row."""
    assigned = np.array(names)
    rows = {name: np.flatnonzero(assigned == name) for name in SPLIT_NAMES}
    return {name: select(everything, indices) for name, indices in rows.items() if len(indices)}
