"""MS-COCO 2014: train2014 for training, val2014 for testing, 80 labels in the order of their ids.

An image carries a label when it has an annotation of that category, crowd annotations included. 702 of the
82,783 training images have none; the paper's 82,081 are those that remain when these are dropped, which is
the default. The test split always has all 40,504 images of val2014, as in the paper.

    annotations/instances_{train,val}2014.json    train2014/*.jpg  val2014/*.jpg   (or below images/)

The annotation files are large (300 MB), mostly outlines that are not needed here, so the labels read from
them are cached in the user's cache folder.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from kmcl.data.dataset import Dataset, Split
from kmcl.data.files import ImageFiles, require_folder, require_some_images
from kmcl.data.readers.coco_files import read_instances
from kmcl.data.readers.options import CutOptions
from kmcl.data.readers.reader import Reader
from kmcl.data.selection import select
from kmcl.data.source_cache import Arrays
from kmcl.data.splitting import finish_splits
from kmcl.errors import InputError

PART_OF_SPLIT = {"train": "train2014", "test": "val2014"}


class Coco2014Options(CutOptions):
    """Options of `coco2014:`.

    keep_unlabelled: keep the training images without any annotation.
    """

    keep_unlabelled: bool = False


def read_coco2014(folder: Path, options: Coco2014Options) -> Dataset:
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


READER = Reader(read_coco2014, Coco2014Options, place="the folder with annotations/")
