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

from kmcl.data.dataset import UNKNOWN, Dataset, Split
from kmcl.data.vectors import refuse_vectors
from kmcl.data.writers.images import encoded_image
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
    refuse_vectors(dataset)
    require_new_folder(folder)
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


def require_new_folder(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder}: exists and is not empty; choose another folder")


def sample_json(labels: tuple[str, ...], split: Split, row: int) -> str:
    """What a sample has beside its image: labels, unknown ones and group where there are any."""
    targets = split.targets[row]
    sample: dict[str, object] = {
        "labels": [label for label, value in zip(labels, targets, strict=True) if value == 1],
        "name": split.images.name(row),
    }
    if (targets == UNKNOWN).any():
        sample["unknown"] = [label for label, value in zip(labels, targets, strict=True) if value == UNKNOWN]
    if split.groups is not None:
        sample["group"] = str(split.groups[row])
    return json.dumps(sample)


def _add(archive: tarfile.TarFile, labels: tuple[str, ...], split: Split, row: int) -> None:
    content, suffix = encoded_image(split.images, row)
    about = sample_json(labels, split, row).encode()
    for ending, data in ((suffix, content), (".json", about)):
        member = tarfile.TarInfo(f"{row:08d}{ending}")  # times and owners stay 0: equal data, equal files
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
