"""Annotations in the format of COCO, with any categories: an image has the labels of its annotations.

    coco:annotations.json                     one file, split for you
    coco:DIR                                  one file per split, found by its name, as in
                                              instances_train2017.json or train/_annotations.coco.json
    coco:DIR -o train=a.json -o val=b.json    the files by name

Crowd annotations count, and images without annotations are kept: they have no label. Categories of the same
name are one label. The images are looked for near the annotations.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import SPLIT_NAMES, UNKNOWN, Dataset, Split
from kmcl.data.files import require_file
from kmcl.data.image_lookup import FolderIndex, find_images, lookup_notes
from kmcl.data.readers.coco_files import read_instances
from kmcl.data.readers.options import DrawOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.split_names import split_of_file
from kmcl.data.recognition import is_coco
from kmcl.data.source_cache import Arrays
from kmcl.data.splitting import draw_splits, finish_splits
from kmcl.data.target_pairs import has_any
from kmcl.errors import InputError
from kmcl.home_folder import expand_home

COMMON_STEMS = ("_annotations.coco", "annotations", "coco", "instances_default", "labels", "result")


class CocoOptions(DrawOptions):
    """Options of `coco:`.

    train:    the annotation file of this split, below the folder that was given.
    val:      the same for val.
    test:     the same for test.
    images:   the folder of the images; default: looked for near the annotations.
    unlisted: whether a category without annotation is absent from the image or unknown. An image that lists
              its absent categories (`neg_category_ids`, as in LVIS) has unknown ones in any case.
    """

    train: Path | None = None
    val: Path | None = None
    test: Path | None = None
    images: Path | None = None
    unlisted: Literal["absent", "unknown"] = "absent"


def read_coco(location: Path, options: CocoOptions) -> Dataset:
    """Read annotation files; see the module's description of the format."""
    folder = location if os.path.isdir(location) else location.parent
    files = _given_files(location, folder, options) or _find_files(location)
    parts = {name: read_instances(path) for name, path in files.items()}
    labels, notes = _labels_of(list(parts.values()))
    index = FolderIndex(_root_of(folder) if options.images is None else folder / expand_home(options.images))
    splits = {}
    for name, path in files.items():
        arrays = parts[name]
        if not len(arrays["names"]):
            raise InputError(f"COCO annotations {path} list no image")
        names = [str(one) for one in arrays["names"]]
        beside = [] if options.images else [path.parent, path.parent / "images"]
        images = find_images(names, _folders(path, name, index.root, beside), path, index)
        notes.extend(lookup_notes(names, images))
        splits[name] = Split(images, _targets(arrays, labels, options.unlisted))
        if num_stray := int(arrays["num_stray"]):
            notes.append(f"{path.name}: {num_stray} annotations are of images that it does not list")
    if not any(has_any(split.targets) for split in splits.values()):
        raise InputError(f"COCO annotations {next(iter(files.values()))}: no image has an annotation")
    if "" in splits:
        splits = draw_splits(splits[""], options)
    stem = location.stem
    name = _root_of(folder).resolve().name if os.path.isdir(location) or stem in COMMON_STEMS else stem
    return Dataset(name, labels, finish_splits(splits, options), tuple(notes))


def _given_files(location: Path, folder: Path, options: CocoOptions) -> dict[str, Path]:
    chosen = {name: getattr(options, name) for name in SPLIT_NAMES}
    files = {name: folder / expand_home(path) for name, path in chosen.items() if path is not None}
    if files and os.path.isfile(location):
        if "train" in files:
            raise InputError(
                f"coco:{location} is the file for train, and train={options.train} is another; with train=, "
                f"give the folder: coco:{folder}"
            )
        files = {"train": location, **files}
    return {name: require_file(files[name], "COCO annotations") for name in SPLIT_NAMES if name in files}


def _find_files(location: Path) -> dict[str, Path]:
    """The annotation file of each split below a folder; one file for all has the name ""."""
    if not os.path.isdir(location):
        return {"": require_file(location, "COCO annotations")}
    found = [path for pattern in ("*.json", "*/*.json") for path in sorted(location.glob(pattern))]
    # COCO itself has captions and keypoints beside the instances.
    found = [path for path in found if path.name.startswith("instances_")] or found
    annotations = [path for path in found if is_coco(path)]
    if len(annotations) == 1:
        return {"": annotations[0]}
    files: dict[str, list[Path]] = defaultdict(list)
    for path in annotations:
        files[split_of_file(path, location) or ""].append(path)
    if not files:
        raise InputError(f"COCO folder {location} holds no COCO annotations (a JSON file with categories)")
    for name, paths in files.items():
        if len(paths) > 1 or (name == "" and len(files) > 1):
            listed = ", ".join(path.relative_to(location).as_posix() for path in annotations)
            raise InputError(
                f"COCO folder {location} holds {listed}; say which are which with -o train=FILE, -o val=FILE "
                "and -o test=FILE"
            )
    return {name: files[name][0] for name in ("", *SPLIT_NAMES) if name in files}


def _root_of(folder: Path) -> Path:
    return folder.parent if folder.name == "annotations" else folder


def _folders(path: Path, split: str, root: Path, beside: list[Path]) -> list[Path]:
    """Where the images of an annotation file usually are, the most likely folder first."""
    part = path.stem.removeprefix("instances_")
    parts = [part, *([split] if split else []), *(["valid", "validation"] if split == "val" else [])]
    near = [inner / name for name in parts for inner in (root, root / "images")]
    within = [root / name / "images" for name in parts]
    folders = [*near, *within, *beside, root, root / "images"]
    return [folder for folder in dict.fromkeys(folders) if os.path.isdir(folder)]


def _labels_of(parts: list[Arrays]) -> tuple[tuple[str, ...], list[str]]:
    """The labels of all files in the order of the first, without groups of categories that nothing has."""
    used = {str(name) for part in parts for name in part["labels"][(part["targets"] == 1).any(axis=0)]}
    groups = {str(name) for part in parts for name in part["parents"]}
    names = list(dict.fromkeys(str(name) for part in parts for name in part["labels"]))
    unused = [name for name in names if name in groups and name not in used]
    repeated = [
        name
        for name in names
        if any(int((part["labels"] == name).sum()) > 1 for part in parts) and name not in unused
    ]
    notes = [f"several categories are called {name!r}: they are one label" for name in repeated]
    notes += [f"category {name!r} only groups others and has no annotation: left out" for name in unused]
    return tuple(name for name in names if name not in unused), notes


def _targets(arrays: Arrays, labels: tuple[str, ...], unlisted: str) -> npt.NDArray[np.int8]:
    given = arrays["targets"].astype(np.int8)
    targets: npt.NDArray[np.int8] = np.zeros((len(given), len(labels)), dtype=np.int8)
    for index, label in enumerate(labels):
        columns = given[:, arrays["labels"] == label]
        if columns.shape[1]:
            # Present if any of its categories is; absent only if all of them are.
            targets[:, index] = np.where((columns == 1).any(axis=1), 1, columns.min(axis=1))
        else:
            targets[:, index] = UNKNOWN
    if unlisted == "unknown":
        targets[(targets == 0) & ~arrays["lists_absent"].astype(np.bool_)[:, None]] = UNKNOWN
    return targets


READER = Reader(read_coco, CocoOptions, place="a JSON file or its folder")
