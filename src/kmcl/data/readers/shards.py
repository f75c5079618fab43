"""Shards: tar files in the form of WebDataset, or chunks of LitData (`kmcl.data.litdata_images`).

In a tar file each sample is an image and a JSON file of the same name:

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

import numpy as np

from kmcl.data.dataset import SPLIT_NAMES, Dataset, ImageStore, Split
from kmcl.data.readers.litdata_chunks import open_chunks, search_chunks
from kmcl.data.readers.options import CutOptions, Names
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.sample_labels import LabelPairs, SampleLabels, groups_of, targets_of
from kmcl.data.readers.split_names import SPLIT_SPELLINGS, numbered_splits
from kmcl.data.selection import JoinedImages
from kmcl.data.shard_places import ShardFolder, find_shards, read_text
from kmcl.data.shard_writing import FORMAT, INDEX
from kmcl.data.source_cache import Arrays, cached_arrays
from kmcl.data.splitting import finish_splits
from kmcl.data.tar_images import Archive, TarImages, TarMember, files_in_tar, is_image
from kmcl.errors import InputError

CACHE_VERSION = "shards-2"


class ShardOptions(CutOptions):
    """Options of `shards:`.

    label_names: the labels in order; default those of labels.json, else all that occur, alphabetically.
    """

    label_names: Names | None = None


def read_shards(location: Path, options: ShardOptions) -> Dataset:
    """Read the shards below a folder or S3 prefix. What is in them is cached until one of them changes."""
    folder = find_shards(location, INDEX)
    shards = tuple(folder.shards.values())
    listed = options.label_names or _listed_labels(folder)
    search = search_chunks if folder.chunked else _search
    found = cached_arrays("shards", shards, CACHE_VERSION, lambda: search(shards))
    labels = tuple(listed or found["labels"].tolist())
    try:
        targets = targets_of(found, labels)
    except ValueError as error:
        name = error.args[0]
        raise InputError(f"{folder.title}: label {name!r} occurs and is not among the labels") from None
    images: ImageStore
    if folder.chunked:
        images = JoinedImages([open_chunks(shard) for shard in shards])
    else:
        images = TarImages(shards, found["members"].astype(np.bytes_), found["places"].astype(np.int64))
    everything = Split(images, targets, groups=groups_of(found))
    split_of_shard = np.array([SPLIT_NAMES.index(split_of(name)) for name in folder.shards])
    split_of_row = split_of_shard[found["places"][:, 0].astype(np.int64)]
    splits = numbered_splits(everything, split_of_row, in_place=True)
    return Dataset(folder.name, labels, finish_splits(splits, options, in_place=True))


def _search(shards: Sequence[Archive]) -> Arrays:
    """Every sample of the shards as arrays."""
    members: list[bytes] = []
    places: list[tuple[int, int, int]] = []
    pairs = LabelPairs()
    for number, path in enumerate(shards):
        for image, labels in _samples(path):
            members.append(image.member.encode())
            places.append((number, image.offset, image.size))
            pairs.add(labels)
    if not members:
        raise InputError(f"shard {shards[0]} has no sample of an image and a .json file")
    return {
        "members": np.array(members),
        "places": np.array(places, dtype=np.int64),
        **pairs.arrays(),
    }


def _samples(path: Archive) -> Iterator[tuple[TarMember, SampleLabels]]:
    """The samples of a shard: consecutive files whose names are equal up to the first dot."""
    key: str | None = None
    image: TarMember | None = None
    labels: TarMember | None = None
    for file in (*files_in_tar(path), None):
        found = None if file is None else _key(file.member)
        if found != key:
            if image is not None:
                yield image, _labels(path, image, labels)
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


def _labels(path: Archive, image: TarMember, labels: TarMember | None) -> SampleLabels:
    if labels is None:
        raise InputError(f"shard {path}: {image.member} has no .json file with its labels beside it")
    try:
        return SampleLabels.parse(labels.read())
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(
            f'shard {path}: {labels.member} must have the labels as in {{"labels": ["cat", "dog"]}}: {error}'
        ) from None


def _listed_labels(folder: ShardFolder) -> list[str] | None:
    """The labels in order that `labels.json` has; None if there is none."""
    try:
        if folder.index is None:
            return None
        index = json.loads(read_text(folder.index))
        if index["format"] != FORMAT:
            raise ValueError(f"it is of the format {index['format']!r}, expected {FORMAT!r}")
        labels, listed = list(map(str, index["labels"])), set(map(str, index["shards"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(f"{folder.index} cannot be read: {error}") from error
    if missing := sorted(listed - set(folder.shards)):
        raise InputError(f"{folder.title}: {missing[0]} is missing, which {INDEX} names")
    return labels


def split_of(shard: str) -> str:
    """The split that the name of a shard begins with, or a folder it is in."""
    *folders, name = shard.split("/")
    words = [re.split(r"[-_.]", name)[0], *folders]
    return next((SPLIT_SPELLINGS[word.lower()] for word in words if word.lower() in SPLIT_SPELLINGS), "train")


READER = Reader(
    read_shards, ShardOptions, place="a folder of .tar files or of LitData's chunks, or an S3 prefix"
)
