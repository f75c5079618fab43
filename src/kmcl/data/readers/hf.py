"""Datasets of Hugging Face, read without its library: Parquet or Arrow files with images and class labels.

    hf:DIR                  train-00000-of-00002.parquet, ... in DIR or DIR/data, or what `save_to_disk` wrote
    hf:FILE.parquet         one file
    hf:owner/name           a dataset of the hub, downloaded to the cache of huggingface_hub

The splits are those in the names of the files or folders; a single one is split for you. Images are bytes in
the files, or paths. The labels are a list of `ClassLabel`, in its order; their names come from the files or
from `dataset_info.json`; -1 is "no label", and an image with nothing else is not annotated. Otherwise the
columns are those of a table.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from kmcl.data.dataset import Dataset
from kmcl.data.readers.hf_features import Features, class_names, features_in_folder, is_list
from kmcl.data.readers.image_columns import ColumnOptions, dataset_from_rows
from kmcl.data.readers.parquet import features_of_file, read_parquet
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.split_names import SPLIT_SPELLINGS, split_of_file
from kmcl.data.readers.table_rows import TableRows
from kmcl.data.selection import JoinedImages
from kmcl.errors import InputError

PATTERNS = ("*.parquet", "*.arrow")
HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
CONVERTED = "refs/convert/parquet"
"""The revision in which the hub keeps every dataset as Parquet."""


class HfOptions(ColumnOptions):
    """Options of `hf:`, besides those of its columns.

    config:        the configuration, a folder of that name, if there are several.
    revision:      of a dataset of the hub.
    allow_outside: accept image paths that leave the folder.
    """

    config: str | None = None
    revision: str | None = None
    allow_outside: bool = False


def read_hf(location: Path, options: HfOptions) -> Dataset:
    """Read a dataset; see the module's description of the format."""
    root = location if os.path.exists(location) else _download(location, options.revision)
    shards, left_out = _find_shards(root, options.config)
    folder = root if os.path.isdir(root) else root.parent
    features = features_of_file(shards[0][0]) or features_in_folder(shards[0][0].parent)
    parts = [(read_parquet(path, features), split) for path, split in shards]
    table = _join(folder if os.path.isdir(root) else root, parts)
    chosen = options.model_copy(update=_label_columns(table, options, features))
    name = location.stem if os.path.isfile(root) else location.resolve().name
    dataset = dataset_from_rows(table, chosen, name=name, root=folder, allow_outside=options.allow_outside)
    notes = [f"left out, in no split: {', '.join(path.name for path in left_out)}"] if left_out else []
    return replace(dataset, notes=(*dataset.notes, *notes))


def _find_shards(root: Path, config: str | None) -> tuple[list[tuple[Path, str]], list[Path]]:
    """The files with their splits ("" if they are to be split), and files that belong to no split."""
    if os.path.isfile(root):
        return [(root, "")], []
    paths = [path for pattern in PATTERNS for path in sorted(root.rglob(pattern))]
    # What the library caches of its own computations.
    paths = [path for path in paths if not path.name.startswith(("cache-", "."))]
    if config is not None:
        paths = [path for path in paths if config in path.relative_to(root).parts[:-1]]
    if not paths:
        inside = "" if config is None else f" in a folder {config!r}"
        raise InputError(f"folder {root} holds no Parquet or Arrow file{inside}")
    configs = sorted({_config_of(path, root) for path in paths})
    if len(configs) > 1:
        raise InputError(
            f"folder {root} has the configurations {', '.join(configs)}; choose one with -o config=NAME"
        )
    splits = {path: split_of_file(path, root) for path in paths}
    found = {split for split in splits.values() if split}
    is_undivided = found <= {"train"}  # who has no splits calls everything train
    shards = [
        (path, "" if is_undivided else split or "") for path, split in splits.items() if split or not found
    ]
    return shards, [path for path, split in splits.items() if found and not split]


def _config_of(path: Path, root: Path) -> str:
    folders = [
        part
        for part in path.relative_to(root).parts[:-1]
        if part != "data" and part.lower() not in SPLIT_SPELLINGS
    ]
    return "/".join(folders) or "(none)"


def _join(path: Path, parts: Sequence[tuple[TableRows, str]]) -> TableRows:
    """The rows of all files, with the split of each file in a column where it is known."""
    first = parts[0][0]
    for table, _ in parts:
        if table.header != first.header or table.stored.keys() != first.stored.keys():
            raise InputError(
                f"{table.title} has other columns than {first.path}: {', '.join(table.header)} instead of "
                f"{', '.join(first.header)}"
            )
    header, rows = first.header, [row for table, _ in parts for row in table.rows]
    if any(split for _, split in parts) and "split" not in header:
        splits = [split for table, split in parts for _ in table.rows]
        header, rows = (*header, "split"), [[*row, split] for row, split in zip(rows, splits, strict=True)]
    stored = {name: JoinedImages([table.stored[name] for table, _ in parts]) for name in first.stored}
    starts = np.cumsum([0, *(len(table.rows) for table, _ in parts)]).tolist()
    unannotated = {
        name: frozenset(
            start + row
            for start, (table, _) in zip(starts, parts, strict=False)
            for row in table.unannotated.get(name, ())
        )
        for name in first.header
    }
    return TableRows(path, header, rows, list(range(1, len(rows) + 1)), stored, unannotated=unannotated)


def _label_columns(table: TableRows, options: HfOptions, features: Features) -> dict[str, tuple[str, ...]]:
    """Which column has the labels, and their names in order, where the options do not say it."""
    named = {
        name: names for name, one in features.items() if (names := class_names(one)) and name in table.header
    }
    column = options.labels_column
    if column is None and options.label_columns is None:
        lists = [name for name in named if is_list(features[name])]
        single = [name for name in named if name not in lists]
        for candidates in (lists, single):
            if len(candidates) == 1:
                column = (candidates[0],)
                break
    if column is None:
        return {}
    listed = tuple(options.label_names or named.get(column[0]) or ())
    return {"labels_column": column} | ({"label_names": listed} if listed else {})


def _download(location: Path, revision: str | None) -> Path:
    """The files of a dataset of the hub, from the network or from the cache of huggingface_hub."""
    name = location.as_posix()
    if not HUB_NAME.fullmatch(name) or location.suffix in (".parquet", ".arrow"):
        raise InputError(f"dataset {location} does not exist")
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise InputError("datasets of the hub need huggingface_hub: pip install 'kmcl[train]'") from None
    wanted = ["*.parquet", "*.arrow", "*dataset_info*.json"]
    for attempt in [revision] if revision else [None, CONVERTED]:
        try:
            folder = Path(
                snapshot_download(name, repo_type="dataset", revision=attempt, allow_patterns=wanted)
            )
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
            raise InputError(
                f"dataset {name} is no folder or file here, and cannot be downloaded from the hub: {error}"
            ) from error
        if any(path for pattern in PATTERNS for path in folder.rglob(pattern)):
            return folder
    raise InputError(f"dataset {name} of the hub has no Parquet or Arrow files")


READER = Reader(read_hf, HfOptions, place="a folder, a Parquet file or a name of the hub")
