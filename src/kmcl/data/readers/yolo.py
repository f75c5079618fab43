"""YOLO's label files: a text file per image, whose lines begin with the number of a class.

    data.yaml                 path: ..., train: images/train, val: images/val, test: ..., names: [cat, dog]
    images/train/1.jpg        labels/train/1.txt: "0 0.5 0.5 0.2 0.2"

An image has the labels of its lines; without a label file, or with an empty one, it has none. `train`, `val`
and `test` are folders, lists of folders, or text files with a path per line. Without data.yaml, a folder with
`classes.txt`, `images/` and `labels/` (labelImg, Label Studio) is split for you.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from kmcl.data.dataset import SPLIT_NAMES, Dataset
from kmcl.data.files import ImageFiles, require_file
from kmcl.data.image_lookup import is_image_name, walk_files
from kmcl.data.readers.annotations import AnnotatedImage, AnnotationOptions, dataset_from_annotations
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.row_problems import RowError, RowProblem, refuse_rows
from kmcl.data.yaml_files import read_yaml
from kmcl.errors import InputError
from kmcl.home_folder import expand_home

CLASSES = "classes.txt"


class YoloOptions(AnnotationOptions):
    """Options of `yolo:`."""


def read_yolo(location: Path, options: YoloOptions) -> Dataset:
    """Read a dataset from its data.yaml, or from its folder; see the module's description of the format."""
    path = _find_description(location)
    if path.name == CLASSES:
        names = [line.strip() for line in _lines(path) if line.strip()]
        folders = [(path.parent / (options.images or "images"), "")]
    else:
        content = _read_yaml(path)
        names = _class_names(content, path)
        folders = list(_folders(content, path, options.images))
    annotated = []
    problems: list[RowProblem] = []
    for folder, split in folders:
        for image in _images_of(folder, path):
            labels = _labels_of(image, names, problems)
            if labels is not None:
                annotated.append(AnnotatedImage(str(image), labels, split=split))
    if problems:
        refuse_rows(RowError(f"YOLO dataset {path}", problems))
    if not annotated:
        raise InputError(
            f"YOLO dataset {path}: there is no image in {', '.join(str(one) for one, _ in folders)}"
        )
    images = ImageFiles(Path(), np.array([image.path for image in annotated]))
    name = path.resolve().parent.name if path.stem in ("data", "dataset", "classes") else path.stem
    return dataset_from_annotations(
        annotated, images, names, options, name=name, source=f"YOLO dataset {path}"
    )


def _find_description(location: Path) -> Path:
    if not os.path.isdir(location):
        return require_file(location, "YOLO dataset")
    found = [
        path for pattern in ("*.yaml", "*.yml") for path in sorted(location.glob(pattern)) if _has_names(path)
    ]
    found = [path for path in found if path.stem == "data"] or found or list(location.glob(CLASSES))
    if len(found) != 1:
        listed = f" but {', '.join(path.name for path in found)}" if found else ""
        raise InputError(f"YOLO folder {location} does not hold one data.yaml or {CLASSES}{listed}")
    return found[0]


def _has_names(path: Path) -> bool:
    try:
        return "names" in _read_yaml(path)
    except InputError:
        return False


def _read_yaml(path: Path) -> dict[str, Any]:
    content = read_yaml(path, "YOLO dataset")
    if not isinstance(content, dict):
        raise InputError(f"YOLO dataset {path} has no names, train and val")
    return content


def _class_names(content: dict[str, Any], path: Path) -> list[str]:
    names = content.get("names")
    if isinstance(names, dict) and set(names) == set(range(len(names))):
        names = [names[number] for number in range(len(names))]
    if not isinstance(names, list) or not names:
        raise InputError(f"YOLO dataset {path}: names must be a list, or numbered from 0 without gaps")
    return [str(name).strip() for name in names]


def _folders(content: dict[str, Any], path: Path, chosen: Path | None) -> Iterable[tuple[Path, str]]:
    """The folder or list of images of each split."""
    given = expand_home(str(content.get("path") or "."))
    root = path.parent / (expand_home(chosen) if chosen else given)
    if not os.path.isdir(root):  # the path of another machine
        root = path.parent
    for split in SPLIT_NAMES:
        entries = content.get(split, content.get("valid") if split == "val" else None)
        for entry in entries if isinstance(entries, list) else [entries]:
            if not entry:
                continue
            # Archives of Roboflow say ../train/images and mean train/images.
            candidates = [root / str(entry), root / str(entry).removeprefix("../"), path.parent / str(entry)]
            found = next((one for one in candidates if os.path.exists(one)), None)
            if found is None and split == "train":
                raise InputError(f"YOLO dataset {path}: {split}: {entry} does not exist in {root}")
            if found is not None:
                yield found, split


def _images_of(place: Path, description: Path) -> Iterable[Path]:
    if os.path.isdir(place):
        for name in walk_files(place):
            if is_image_name(name):
                yield place / name
        return
    for line in _lines(place):
        if line.strip():
            listed = Path(line.strip())
            beside = place.parent / listed
            yield beside if os.path.exists(beside) else description.parent / listed


def _labels_of(image: Path, names: list[str], problems: list[RowProblem]) -> frozenset[str] | None:
    """The labels in the file of an image; None where it has problems, which are added."""
    path = _label_file(image)
    labels = set()
    num_problems = len(problems)
    for number, line in enumerate(_lines(path) if os.path.isfile(path) else [], 1):
        if not line.strip():
            continue
        first = line.split()[0]
        try:
            labels.add(names[_class_number(first, len(names))])
        except ValueError:
            numbers = f"the number of a class (0 to {len(names) - 1})"
            place = f"labels {path} line {number}"
            kind = f"lines do not begin with {numbers}"
            problems.append(
                RowProblem(len(problems), f"{first!r} is not {numbers}", kind, first, place=place)
            )
    return frozenset(labels) if len(problems) == num_problems else None


def _class_number(text: str, num_classes: int) -> int:
    number = float(text)
    if not 0 <= number < num_classes or number != int(number):
        raise ValueError
    return int(number)


def _label_file(image: Path) -> Path:
    """The label file of an image: the last folder `images` of its path becomes `labels`."""
    parts = list(PurePosixPath(image.as_posix()).with_suffix(".txt").parts)
    places = [index for index, part in enumerate(parts[:-1]) if part == "images"]
    if places:
        parts[places[-1]] = "labels"
    return Path(*parts)


def _lines(path: Path) -> list[str]:
    require_file(path, "YOLO file")
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        raise InputError(f"YOLO file {path} cannot be read: {error}") from error


READER = Reader(read_yolo, YoloOptions, place="data.yaml or its folder")
