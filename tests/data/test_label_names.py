"""Labels with odd names survive every format that datasets are written in, or are refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from kmcl.data import Dataset, Split, open_dataset, write_dataset
from kmcl.data.files import ImageFiles
from kmcl.data.litdata_writing import write_chunks
from kmcl.data.selection import join_splits
from kmcl.data.shard_writing import write_shards
from kmcl.data.table_writing import READER_OPTIONS, write_table
from kmcl.data.vector_writing import write_vectors
from kmcl.data.vectors import FeatureVectors
from kmcl.errors import InputError
from small_images import one_colour_dataset

COLUMN_NAMES = (
    "patient",
    "Patient ID",
    "Labels",
    "labels",
    "Finding Labels",
    "unknown_labels",
    "Unknown_Labels",
)
COLUMN_NAMES += ("image", "Image", "image_path", "path", "split", "Split", "group", "Group", "source", "ids")
SIGNS = ("größe 🦓", "a;b;c;d;e", "a,b", "a|b", 'say "x;y;z"', "it's", "['a']", "[a]", "1", "nan", "x", "x y")
SPECIAL = (
    "No Finding",
    "label_1",
    "_none",
    ".hidden",
    "a/b",
    "train",
    "-",
    "segmentation",
    '"segmentation": [',
)
BAD = (" x", "x ", "\u00a0x", "a\tb", "a\nb", "")
NAMES = (*COLUMN_NAMES, *SIGNS, *SPECIAL, *BAD)
TARGETS = {"train": [[1, 0], [0, 1], [0, 0], [1, 1]], "val": [[0, 1]], "test": [[1, 1], [1, 0]]}


Rows = dict[str, list[tuple[list[int], str]]]


def rows_of(dataset: Dataset, labels: tuple[str, ...]) -> Rows:
    """Targets and group of each row."""
    assert sorted(dataset.labels) == sorted(labels)
    order = [dataset.labels.index(label) for label in labels]
    return {
        name: [
            (split.targets[row, order].tolist(), "" if split.groups is None else str(split.groups[row]))
            for row in range(len(split))
        ]
        for name, split in dataset.splits.items()
    }


def converted(dataset: Dataset, folder: Path, kind: str) -> Dataset:
    read = open_dataset(write_dataset(dataset, f"{kind}:{folder / 'out'}"))
    if kind != "folder":
        return read
    order = {  # of the pixels: the files of one label come before those of the next
        name: np.argsort([split.images.load(row)[0, 0, 0] for row in range(len(split))])
        for name, split in read.splits.items()
    }
    return replace(read, splits={name: ordered(split, order[name]) for name, split in read.splits.items()})


def ordered(split: Split, order: np.ndarray) -> Split:
    return replace(split, targets=split.targets[order])


def in_shards(dataset: Dataset, folder: Path) -> Dataset:
    write_shards(dataset, folder / "shards", 2)
    return open_dataset(f"shards:{folder / 'shards'}")


def in_chunks(dataset: Dataset, folder: Path) -> Dataset:
    pytest.importorskip("litdata", reason="needs litdata")
    write_chunks(dataset, folder / "chunks", 2)
    return open_dataset(f"shards:{folder / 'chunks'}")


def as_vectors(dataset: Dataset, folder: Path) -> Dataset:
    rng = np.random.default_rng(0)
    splits = {
        name: replace(split, images=FeatureVectors(rng.random((len(split), 3), dtype=np.float32), name))
        for name, split in dataset.splits.items()
    }
    write_vectors(replace(dataset, splits=splits), folder / "x.npz")
    return open_dataset(f"features:{folder / 'x.npz'}")


def as_table_of_files(dataset: Dataset, folder: Path, **options: object) -> Dataset:
    everything = join_splits(dataset)
    names = np.array([f"{number}.png" for number in range(len(everything))])
    for number, name in enumerate(names):
        Image.fromarray(everything.images.load(number)).save(folder / name)
    starts = np.cumsum([0, *map(len, dataset.splits.values())])
    splits = {
        name: replace(split, images=ImageFiles(folder, names[start : start + len(split)]))
        for start, (name, split) in zip(starts, dataset.splits.items(), strict=False)
    }
    write_table(replace(dataset, splits=splits), folder / "t.csv", folder)
    return open_dataset(f"table:{folder / 't.csv'}", **options)


FORMATS: dict[str, Callable[[Dataset, Path], Dataset]] = {
    **{name: partial(converted, kind=name) for name in ("table", "coco", "folder", "labelstudio", "hf")},
    "shards": in_shards,
    "chunks": in_chunks,
    "vectors": as_vectors,
    "files": as_table_of_files,
    "frame": partial(as_table_of_files, **READER_OPTIONS),
}
WITHOUT_GROUPS = ("coco", "folder")  # as docs/data.md says
NO_COLUMNS = ("image", "split", "group", "Labels", "labels", "Finding Labels")
NO_COLUMNS += ("unknown_labels", "Unknown_Labels")
NO_FOLDERS = ("_none", ".hidden", "a/b")


def refused(kind: str) -> set[str]:
    if kind in ("shards", "chunks"):
        return set()
    if kind in ("table", "files", "frame"):
        return {*BAD, *NO_COLUMNS}
    return {*BAD, *(NO_FOLDERS if kind == "folder" else ())}


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("groups", [False, True])
def test_a_label_survives_or_is_refused_by_name(
    tmp_path_factory: pytest.TempPathFactory, kind: str, groups: bool
) -> None:
    if kind == "hf":
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    for label in NAMES:
        for unknown in [False] if kind == "folder" else [False, True]:
            make = partial(one_colour_dataset, (label, "cat"), TARGETS, unknown=unknown)
            dataset = make(groups=groups)
            expected = rows_of(make(groups=groups and kind not in WITHOUT_GROUPS), dataset.labels)
            folder = tmp_path_factory.mktemp("odd")
            if label in refused(kind):
                with pytest.raises(InputError, match=re.escape(repr(label))):
                    FORMATS[kind](dataset, folder)
            else:
                assert rows_of(FORMATS[kind](dataset, folder), dataset.labels) == expected, label
