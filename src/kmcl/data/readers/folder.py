"""A folder per label; an image with several labels is in several folders, as a copy or a link.

    DIR/cat/1.jpg  DIR/dog/1.jpg        the same picture: it has both labels
    DIR/train/cat/...  DIR/val/...      with the splits above; without them the images are split for you

Files are the same image if they have the same bytes. Files that are not images, and images outside of the
labels' folders, are left out and listed.
"""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from pathlib import Path
from typing import Literal

import numpy as np

from kmcl.data.dataset import SPLIT_NAMES, Dataset, Split
from kmcl.data.files import ImageFiles, require_folder
from kmcl.data.image_lookup import is_image_name, walk_files
from kmcl.data.readers.options import DrawOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.split_names import SPLIT_SPELLINGS
from kmcl.data.splitting import draw_splits, finish_splits
from kmcl.errors import InputError

SHOWN_FILES = 3

LabelsOfImage = dict[str, set[str]]
"""The labels of each image, by the path of its first file."""


class FolderOptions(DrawOptions):
    """Options of `folder:`.

    nested:  the label of an image in folders within folders: the first one, the last one, or all of them.
    nothing: the folder of images that have none of the labels.
    """

    nested: Literal["first", "last", "all"] = "first"
    nothing: str = "_none"


def read_folder(root: Path, options: FolderOptions) -> Dataset:
    """Read a folder per label; see the module's description of the format."""
    require_folder(root, "folder of labels")
    paths = list(walk_files(root))
    images = [path for path in paths if is_image_name(path)]
    parts = _parts(images)
    found = {split: _labels_of_images(root, parts[split], split, options) for split in parts}
    labels = tuple(sorted({label for part in found.values() for names in part.values() for label in names}))
    if not labels:
        raise InputError(f"folder {root} holds no folder with images; each label needs one, as in {root}/cat")
    column = {label: index for index, label in enumerate(labels)}
    splits = {}
    for split, part in found.items():
        targets = np.zeros((len(part), len(labels)), dtype=np.int8)
        for row, names in enumerate(part.values()):
            targets[row, [column[name] for name in names]] = 1
        if part:
            splits[split] = Split(ImageFiles(root, np.array(list(part))), targets)
    if "" in splits:
        splits = draw_splits(splits[""], options)
    notes = _notes(root, paths, images, {path for part in parts.values() for path in part})
    return Dataset(root.resolve().name, labels, finish_splits(splits, options), tuple(notes))


def _parts(images: list[str]) -> dict[str, list[str]]:
    """The images in folders, by split; all under "" unless every folder at the top is called like a split.

    A folder `train` beside `bus` and `car` is a label.
    """
    depth = {path: path.count("/") for path in images}
    tops = {path.partition("/")[0] for path in images if depth[path]}
    deep = [path for path in images if depth[path] > 1]
    if not deep or not all(top.lower() in SPLIT_SPELLINGS for top in tops):
        return {"": [path for path in images if depth[path]]}
    parts: dict[str, list[str]] = {name: [] for name in SPLIT_NAMES}
    for path in deep:
        parts[SPLIT_SPELLINGS[path.partition("/")[0].lower()]].append(path)
    return parts


def _labels_of_images(root: Path, paths: list[str], split: str, options: FolderOptions) -> LabelsOfImage:
    first_of = _same_content(root, paths)
    labels: LabelsOfImage = {}
    for path in paths:
        folders = path.split("/")[1 if split else 0 : -1]
        chosen = {"first": folders[:1], "last": folders[-1:], "all": folders}[options.nested]
        labels.setdefault(first_of[path], set()).update(set(chosen) - {options.nothing})
    return labels


def _same_content(root: Path, paths: list[str]) -> dict[str, str]:
    """For each file the first one with the same bytes; only files of the same size are read."""
    by_size: dict[int, list[str]] = defaultdict(list)
    for path in paths:
        try:
            by_size[os.stat(root / path).st_size].append(path)
        except OSError as error:
            raise InputError(f"image {root / path} cannot be read: {error.strerror}") from error
    first_of = {}
    for same in by_size.values():
        first_with: dict[bytes, str] = {}
        for path in same:
            content = _digest(root / path) if len(same) > 1 else b""
            first_of[path] = first_with.setdefault(content, path)
    return first_of


def _digest(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, hashlib.blake2b).digest()
    except OSError as error:
        raise InputError(f"image {path} cannot be read: {error.strerror}") from error


def _notes(root: Path, paths: list[str], images: list[str], used: set[str]) -> list[str]:
    notes = []
    if others := sorted(set(paths) - set(images)):
        notes.append(f"left out, no images: {_listed(others)}")
    if outside := [path for path in images if path not in used]:
        notes.append(f"left out, not in the folder of a label: {_listed(outside)}")
    empty = [
        folder
        for path, folders, files in os.walk(root)
        if not (folders or files) and (folder := Path(path).relative_to(root).as_posix()) != "."
    ]
    if empty:
        notes.append(f"empty folders: {_listed(sorted(empty))}")
    return notes


def _listed(paths: list[str]) -> str:
    shown = ", ".join(paths[:SHOWN_FILES])
    return shown if len(paths) <= SHOWN_FILES else f"{shown} and {len(paths) - SHOWN_FILES} more"


READER = Reader(read_folder, FolderOptions, place="a folder with a folder per label")
