"""Tar shards in the form of WebDataset: an image and a JSON file of the same name for each sample.

    train-000000.tar:  0001.jpg  0001.json  0002.jpg  0002.json ...
    0001.json:         {"labels": ["cat", "dog"], "unknown": ["hat"], "group": "patient 7"}

Only `labels` is needed. A shard belongs to the split that its name begins with, or its folder; without any it
is training data. `labels.json` beside the shards, which `kmcl data shard` writes, has the labels in order and
what must be there. Images are read at their position in a shard, so shuffling, resuming and sharing among
processes are those of every other dataset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from kmcl.data.dataset import UNKNOWN, Dataset, Split
from kmcl.data.files import require_folder
from kmcl.data.readers.options import CutOptions, Names
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.split_names import SPLIT_SPELLINGS
from kmcl.data.selection import select
from kmcl.data.shard_writing import FORMAT, INDEX
from kmcl.data.source_cache import Arrays, cached_arrays
from kmcl.data.splitting import finish_splits
from kmcl.data.tar_images import TarImages, TarMember, files_in_tar, is_image
from kmcl.errors import InputError

CACHE_VERSION = "shards-1"


class ShardOptions(CutOptions):
    """Options of `shards:`.

    label_names: the labels in order; default those of labels.json, else all that occur, alphabetically.
    """

    label_names: Names | None = None


def read_shards(folder: Path, options: ShardOptions) -> Dataset:
    """Read the shards below a folder. What is in them is cached until one of them changes."""
    require_folder(folder, "folder of shards")
    shards = sorted(path for path in folder.rglob("*.tar") if not path.name.startswith("."))
    if not shards:
        raise InputError(f"folder of shards {folder} has no .tar file")
    listed = options.label_names or _listed_labels(folder, shards)
    found = cached_arrays("shards", shards, CACHE_VERSION, lambda: _search(shards))
    names = tuple(found["labels"].tolist())
    labels = tuple(listed or names)
    if unknown := [name for name in names if name not in labels]:
        raise InputError(
            f"folder of shards {folder}: label {unknown[0]!r} occurs and is not among the labels"
        )
    targets = np.zeros((len(found["members"]), len(labels)), dtype=np.int8)
    for key, value in (("present", 1), ("unknown", UNKNOWN)):
        rows, columns = found[key].astype(np.int64).reshape(-1, 2).T
        targets[rows, np.array([labels.index(name) for name in names], dtype=np.int64)[columns]] = value
    images = TarImages(tuple(shards), found["members"].astype(np.bytes_), found["places"].astype(np.int64))
    groups = found["groups"].astype(np.str_) if (found["groups"] != "").any() else None
    everything = Split(images, targets, groups=groups)
    of_shard = np.array([_split_of(path, folder) for path in shards])
    of_row = of_shard[found["places"][:, 0]]
    splits = {name: select(everything, np.flatnonzero(of_row == name)) for name in np.unique(of_row).tolist()}
    return Dataset(folder.resolve().name, labels, finish_splits(splits, options))


class _Sample(NamedTuple):
    image: TarMember
    present: list[str]
    unknown: list[str]
    group: str


def _search(shards: Sequence[Path]) -> Arrays:
    """Every sample of the shards as arrays; labels are numbered in alphabetical order."""
    members: list[bytes] = []
    places: list[tuple[int, int, int]] = []
    groups: list[str] = []
    pairs: dict[str, list[tuple[int, str]]] = {"present": [], "unknown": []}
    for number, path in enumerate(shards):
        for sample in _samples(path):
            row = len(members)
            members.append(sample.image.member.encode())
            places.append((number, sample.image.offset, sample.image.size))
            groups.append(sample.group)
            pairs["present"] += [(row, name) for name in sample.present]
            pairs["unknown"] += [(row, name) for name in sample.unknown]
    if not members:
        raise InputError(f"shard {shards[0]} has no sample of an image and a .json file")
    names = sorted({name for found in pairs.values() for _, name in found})
    number_of = {name: number for number, name in enumerate(names)}
    numbered = {key: [(row, number_of[name]) for row, name in found] for key, found in pairs.items()}
    return {
        "members": np.array(members),
        "places": np.array(places, dtype=np.int64),
        "groups": np.array(groups),
        "labels": np.array(names, dtype=np.str_),
        **{key: np.array(found, dtype=np.int64).reshape(-1, 2) for key, found in numbered.items()},
    }


def _samples(path: Path) -> Iterator[_Sample]:
    """The samples of a shard: consecutive files whose names are equal up to the first dot."""
    key: str | None = None
    image: TarMember | None = None
    labels: TarMember | None = None
    for file in (*files_in_tar(path), None):
        found = None if file is None else _key(file.member)
        if found != key:
            if image is not None:
                yield _sample(path, image, labels)
            key, image, labels = found, None, None
        if file is not None and file.member.endswith(".json"):
            labels = file
        elif file is not None and is_image(file.member):
            if image is not None:
                raise InputError(
                    f"shard {path}: sample {key!r} has two images, {image.member} and {file.member}"
                )
            image = file


def _key(member: str) -> str:
    inside = PurePosixPath(member)
    return str(inside.with_name(inside.name.partition(".")[0] or inside.name))


def _sample(path: Path, image: TarMember, labels: TarMember | None) -> _Sample:
    if labels is None:
        raise InputError(f"shard {path}: {image.member} has no .json file with its labels beside it")
    try:
        values = json.loads(labels.read())
        present, unknown = values["labels"], values.get("unknown", [])
        if not all(
            isinstance(names, list) and all(isinstance(name, str) for name in names)
            for names in (present, unknown)
        ):
            raise TypeError("labels must be a list of names")
        return _Sample(image, present, unknown, str(values.get("group", "")))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            f'shard {path}: {labels.member} must have the labels as in {{"labels": ["cat", "dog"]}}: {error}'
        ) from None


def _listed_labels(folder: Path, shards: Sequence[Path]) -> list[str] | None:
    """The labels in order that `labels.json` has; None if there is none."""
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
        if index["format"] != FORMAT:
            raise ValueError(f"it is of the format {index['format']!r}, expected {FORMAT!r}")
        labels, listed = list(map(str, index["labels"])), set(map(str, index["shards"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if missing := sorted(listed - {shard.relative_to(folder).as_posix() for shard in shards}):
        raise InputError(f"folder of shards {folder}: {missing[0]} is missing, which {INDEX} names")
    return labels


def _split_of(path: Path, folder: Path) -> str:
    words = [re.split(r"[-_.]", path.name)[0], *path.relative_to(folder).parts[:-1]]
    return next((SPLIT_SPELLINGS[word.lower()] for word in words if word.lower() in SPLIT_SPELLINGS), "train")


READER = Reader(read_shards, ShardOptions, place="a folder of .tar files")
