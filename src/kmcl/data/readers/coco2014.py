"""MS-COCO 2014: train2014 for training, val2014 for testing, 80 labels in the order of their ids.

An image carries a label when it has an annotation of that category, crowd annotations included. 702 of the
82,783 training images have none; the paper's 82,081 are those that remain when these are dropped, which is
the default. The test split always has all 40,504 images of val2014, as in the paper.

    annotations/instances_{train,val}2014.json    train2014/*.jpg  val2014/*.jpg   (or below images/)

The annotation files are large (300 MB), mostly outlines that are not needed here, so the labels read from
them are cached in the user's cache folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Dataset, Split
from kmcl.data.files import ImageFiles, require_file, require_folder, require_some_images
from kmcl.data.readers.options import CutOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.selection import select
from kmcl.data.source_cache import Arrays, cached_arrays
from kmcl.data.splitting import finish_splits
from kmcl.errors import InputError

CACHE_VERSION = "coco-1"
OUTLINE_KEY = b'"segmentation":'
PART_OF_SPLIT = {"train": "train2014", "test": "val2014"}


class CocoOptions(CutOptions):
    """Options of `coco2014:`.

    keep_unlabelled: keep the training images without any annotation.
    """

    keep_unlabelled: bool = False


def read_coco2014(folder: Path, options: CocoOptions) -> Dataset:
    """Read COCO 2014 from the folder that holds `annotations`; the val2014 part may be missing."""
    require_folder(folder, "COCO folder")
    labels: tuple[str, ...] = ()
    splits = {}
    for name, part in PART_OF_SPLIT.items():
        path = folder / "annotations" / f"instances_{part}.json"
        if name == "test" and not path.exists():
            continue
        arrays = read_instances(path)
        found = tuple(str(label) for label in arrays["labels"])
        if labels and found != labels:
            raise InputError(f"COCO annotations {path} have other categories than those of the training part")
        labels = found
        splits[name] = _make_split(folder, part, path, arrays)
    if not options.keep_unlabelled:
        carries = (splits["train"].targets == 1).any(axis=1)
        if not carries.any():
            raise InputError(f"COCO folder {folder}: no training image has an annotation")
        splits["train"] = select(splits["train"], np.flatnonzero(carries))
    return Dataset("coco2014", labels, finish_splits(splits, options))


def read_instances(path: Path) -> Arrays:
    """The labels, file names and N x L targets of an instances file, from the cache if it is unchanged."""
    require_file(path, "COCO annotations")
    return cached_arrays(path.stem, [path], CACHE_VERSION, lambda: _parse_instances(path))


def _parse_instances(path: Path) -> Arrays:
    try:
        content = json.loads(without_outlines(path.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"COCO annotations {path} are not readable JSON: {error}") from error
    try:
        return _condense(content)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"COCO annotations {path} lack the expected images, annotations and categories: {error!r}"
        ) from error


def without_outlines(text: bytes) -> bytes:
    """The JSON text with every value of "segmentation" replaced by null.

    The outlines are two thirds of the file and most of its numbers: without them it parses three times as
    fast, in a third of the memory. A polygon is a list of lists of numbers and ends at the last bracket
    before the next key or closing brace; a crowd's outline is an object without objects inside. What is
    neither stays as it is.
    """
    kept = []
    start = 0
    while (key := text.find(OUTLINE_KEY, start)) >= 0:
        value = key + len(OUTLINE_KEY)
        while text[value : value + 1].isspace():
            value += 1
        brace = text.find(b"}", value)
        if text[value : value + 1] == b"{":
            end = brace + 1
        elif text[value : value + 1] == b"[":
            quote = text.find(b'"', value, brace)
            end = text.rfind(b"]", value, quote if quote >= 0 else brace) + 1
        else:
            end = 0
        kept.append(text[start:value])
        if end > value:
            kept.append(b"null")
        start = max(value, end)
    kept.append(text[start:])
    return b"".join(kept)


def _condense(content: dict[str, Any]) -> Arrays:
    # Category ids run from 1 to 90 with gaps; the published order of the 80 labels is that of the ids.
    categories = sorted(content["categories"], key=lambda category: category["id"])
    column = {category["id"]: index for index, category in enumerate(categories)}
    images = content["images"]
    row = {image["id"]: index for index, image in enumerate(images)}
    targets: npt.NDArray[np.int8] = np.zeros((len(images), len(categories)), dtype=np.int8)
    for annotation in content["annotations"]:
        # Files reduced by hand may still have annotations of images they no longer list.
        index = row.get(annotation["image_id"])
        if index is not None:
            targets[index, column[annotation["category_id"]]] = 1
    return {
        "labels": np.array([category["name"] for category in categories]),
        "names": np.array([image["file_name"] for image in images]),
        "targets": targets,
    }


def _make_split(folder: Path, part: str, source: Path, arrays: Arrays) -> Split:
    candidates = (folder / part, folder / "images" / part)
    root = next((path for path in candidates if path.is_dir()), None)
    if root is None:
        raise InputError(f"COCO folder {folder} holds neither {part}/ nor images/{part}/")
    names, targets = arrays["names"], arrays["targets"]
    if not len(names):
        raise InputError(f"COCO annotations {source} list no image")
    images = ImageFiles(root, names.astype(np.str_))
    require_some_images(images, source)
    return Split(images, targets.astype(np.int8))


READER = Reader(read_coco2014, CocoOptions, place="the folder with annotations/")
