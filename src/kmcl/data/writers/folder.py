"""A folder per split, in it a folder per label; an image with several labels is in each of their folders."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from kmcl.data.dataset import Dataset
from kmcl.data.readers.folder import FolderOptions
from kmcl.data.target_pairs import count_images
from kmcl.data.writers.images import OnImage, refuse_unknown, written_images
from kmcl.errors import InputError

NOTHING = str(FolderOptions.model_fields["nothing"].default)


def write_folder(dataset: Dataset, folder: Path, on_image: OnImage | None) -> str:
    refuse_unknown(dataset, "a folder per label")
    counts = np.sum([count_images(split.targets) for split in dataset.splits.values()], axis=0)
    for label, count in zip(dataset.labels, counts, strict=True):
        if not count:
            raise InputError(f"a folder per label cannot hold the label {label!r}, which no image has")
        if label in (NOTHING, "") or label.startswith(".") or set("/\\\0") & set(label):
            raise InputError(f"the label {label!r} cannot be the name of a folder; rename it")
    for image in written_images(dataset, on_image):
        labels = [
            label for label, target in zip(dataset.labels, image.targets, strict=True) if target == 1
        ] or [NOTHING]
        paths = [folder / image.split / label / image.name for label in labels]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        paths[0].write_bytes(image.content)
        for path in paths[1:]:
            try:
                os.link(paths[0], path)
            except OSError:  # a file system without links
                path.write_bytes(image.content)
    return f"folder:{folder}"
