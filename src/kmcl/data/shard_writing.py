"""Writing any dataset as tar shards in the form of WebDataset, which the reader `shards:` opens.

train-000000.tar   00000000.jpg, 00000000.json, 00000001.jpg, ...
labels.json        the labels in order and the number of images of every shard; written last
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from kmcl.data.dataset import UNKNOWN, Dataset, ImageStore, Split
from kmcl.data.files import ImageFiles
from kmcl.data.selection import SelectedImages
from kmcl.data.tar_images import TarImages
from kmcl.errors import InputError
from kmcl.storage.atomic import replacing, write_json

FORMAT = "kmcl-shards-1"
INDEX = "labels.json"


def write_shards(
    dataset: Dataset, folder: Path, images_per_shard: int, on_image: Callable[[int], object] | None = None
) -> list[Path]:
    """Write the splits of a dataset, image files byte by byte and other images as PNG; returns the shards.

    on_image: called with 1 after each image
    """
    if images_per_shard < 1:
        raise InputError(f"images_per_shard must be at least 1; got {images_per_shard}")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: exists and is not empty; choose another folder")
    counts: dict[str, int] = {}
    for name, split in dataset.splits.items():
        for number, first in enumerate(range(0, len(split), images_per_shard)):
            rows = range(first, min(first + images_per_shard, len(split)))
            path = folder / f"{name}-{number:06d}.tar"
            with replacing(path) as temporary, tarfile.open(temporary, "w") as archive:
                for row in rows:
                    _add(archive, dataset.labels, split, row)
                    if on_image is not None:
                        on_image(1)
            counts[path.name] = len(rows)
    write_json(folder / INDEX, {"format": FORMAT, "labels": list(dataset.labels), "shards": counts})
    return [folder / name for name in counts]


def _add(archive: tarfile.TarFile, labels: tuple[str, ...], split: Split, row: int) -> None:
    content, suffix = _encoded(split.images, row)
    targets = split.targets[row]
    sample: dict[str, object] = {
        "labels": [label for label, value in zip(labels, targets, strict=True) if value == 1],
        "name": split.images.name(row),
    }
    if (targets == UNKNOWN).any():
        sample["unknown"] = [label for label, value in zip(labels, targets, strict=True) if value == UNKNOWN]
    if split.groups is not None:
        sample["group"] = str(split.groups[row])
    for ending, data in ((suffix, content), (".json", json.dumps(sample).encode())):
        member = tarfile.TarInfo(f"{row:08d}{ending}")  # times and owners stay 0: equal data, equal files
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))


def _encoded(store: ImageStore, index: int) -> tuple[bytes, str]:
    """The bytes of an image as they are stored, if they are in a file; else as PNG. With the suffix."""
    while isinstance(store, SelectedImages):
        store, index = store.images, int(store.indices[index])
    if isinstance(store, ImageFiles):
        path = Path(store.name(index))
        try:
            return path.read_bytes(), path.suffix.lower()
        except OSError as error:
            raise InputError(f"image {path} cannot be read: {error.strerror}") from error
    if isinstance(store, TarImages):
        member = store.member(index)
        return member.read(), Path(member.member).suffix.lower()
    buffer = io.BytesIO()
    Image.fromarray(store.load(index)).save(buffer, "PNG")
    return buffer.getvalue(), ".png"
