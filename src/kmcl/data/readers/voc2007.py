"""PASCAL VOC 2007: XML annotations, 20 labels, the `trainval` list for training and `test` for testing.

An object may be marked difficult. A label that an image shows only in difficult objects is excluded from the
evaluation there, according to the VOC rules, and is by default positive in training.

    VOCdevkit/VOC2007/{Annotations,ImageSets/Main,JPEGImages}
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN, Dataset, Split
from kmcl.data.files import ImageFiles, require_file, require_folder, require_some_images
from kmcl.data.readers.options import CutOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.row_problems import RowError, RowProblem, refuse_rows
from kmcl.data.selection import select
from kmcl.data.splitting import finish_splits
from kmcl.errors import InputError, suggest

VOC_LABELS = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)

LIST_OF_SPLIT = {"train": "trainval", "test": "test"}


class VocOptions(CutOptions):
    """Options of `voc2007:`.

    difficult: the training target of a label seen only in difficult objects: positive, unknown or absent.
    """

    difficult: Literal["positive", "unknown", "absent"] = "positive"


def read_voc2007(folder: Path, options: VocOptions) -> Dataset:
    """Read VOC 2007 from the folder VOC2007, from VOCdevkit, or from the folder that holds that."""
    root = _find_root(folder)
    splits = {}
    for name, list_name in LIST_OF_SPLIT.items():
        path = root / "ImageSets" / "Main" / f"{list_name}.txt"
        # The test set is a separate download.
        if name == "train" or path.exists():
            splits[name] = _read_split(root, path, options)
    return Dataset("voc2007", VOC_LABELS, finish_splits(splits, options))


def _find_root(folder: Path) -> Path:
    require_folder(folder, "VOC folder")
    for candidate in (folder, folder / "VOC2007", folder / "VOCdevkit" / "VOC2007"):
        if (candidate / "ImageSets" / "Main").is_dir():
            return candidate
    raise InputError(f"VOC folder {folder} holds no VOC2007/ImageSets/Main")


def _read_split(root: Path, list_path: Path, options: VocOptions) -> Split:
    lines = require_file(list_path, "VOC image list").read_text("utf-8", "replace").splitlines()
    # Lines carry leading and trailing spaces, in the lists of one label also a second column.
    ids = [(number, line.split()[0]) for number, line in enumerate(lines, 1) if line.strip()]
    if not ids:
        raise InputError(f"VOC image list {list_path} is empty")
    shown = np.zeros((len(ids), len(VOC_LABELS)), dtype=np.bool_)
    difficult = np.zeros_like(shown)
    problems = []
    refused = np.zeros(len(ids), np.bool_)
    for row, (number, image_id) in enumerate(ids):
        annotation = root / "Annotations" / f"{image_id}.xml"
        for kind, message, value in _read_annotation(annotation, shown[row], difficult[row]):
            refused[row] = True
            problems.append(RowProblem(number, f"annotation {annotation}{message}", kind, value or image_id))
    if problems:
        refuse_rows(RowError(f"VOC image list {list_path}", problems))
    if refused.all():
        raise InputError(f"VOC image list {list_path} has no image that can be used")
    only_difficult = difficult & ~shown
    targets = shown.astype(np.int8)
    targets[only_difficult] = {"positive": 1, "unknown": UNKNOWN, "absent": 0}[options.difficult]
    names = np.array([f"JPEGImages/{image_id}.jpg" for _, image_id in ids])
    images = ImageFiles(root, names)
    require_some_images(images, list_path)
    line_numbers = np.array([number for number, _ in ids], dtype=np.int64)
    everything = Split(images, targets, ignored=only_difficult, lines=line_numbers)
    return select(everything, np.flatnonzero(~refused)) if refused.any() else everything


class _AnnotationProblem(NamedTuple):
    """kind: for several; message: after the name of the file; value: nothing where it is the image"""

    kind: str
    message: str
    value: str = ""


def _read_annotation(
    path: Path, shown: npt.NDArray[np.bool_], difficult: npt.NDArray[np.bool_]
) -> Iterator[_AnnotationProblem]:
    """Mark which labels the image shows in ordinary and in difficult objects; gives what is wrong."""
    if not os.path.isfile(path):  # unlike Path.is_file, False for a name that is too long
        yield _AnnotationProblem("annotations are missing", " is missing")
        return
    try:
        root = ElementTree.parse(path).getroot()
    except (ElementTree.ParseError, LookupError, OSError, ValueError) as error:
        yield _AnnotationProblem("annotations cannot be read", f" cannot be read: {error}")
        return
    # Only children of the root: an object's parts (head, hand, foot) have names too.
    for element in root.findall("object"):
        name = (element.findtext("name") or "").strip()
        if name not in VOC_LABELS:
            message = f": object {name!r} is none of the 20 labels{suggest(name, VOC_LABELS)}"
            yield _AnnotationProblem("annotations have objects that are none of the 20 labels", message, name)
            continue
        is_difficult = (element.findtext("difficult") or "0").strip() == "1"
        (difficult if is_difficult else shown)[VOC_LABELS.index(name)] = True


READER = Reader(read_voc2007, VocOptions, place="the VOCdevkit folder")
