"""Writing any dataset as chunks of LitData, which the reader `shards:` and LitData itself open.

train/chunk-0-0.bin ...  samples of `image`, the bytes of an image file, and `labels`, JSON text
train/index.json         LitData's own
labels.json              the labels in order and the number of images of every split; written last
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kmcl.data.dataset import Dataset
from kmcl.data.shard_places import CHUNK_INDEX
from kmcl.data.shard_writing import FORMAT, INDEX, require_new_folder, sample_json
from kmcl.data.vectors import refuse_vectors
from kmcl.data.writers.images import encoded_image
from kmcl.errors import InputError
from kmcl.storage.atomic import write_json


def write_chunks(
    dataset: Dataset, folder: Path, images_per_chunk: int, on_image: Callable[[int], object] | None = None
) -> list[Path]:
    """Write the splits of a dataset, files byte by byte and other images as PNG; returns the indices."""
    try:
        from litdata.streaming import Cache
    except ImportError as error:
        raise InputError("--form litdata needs the package litdata: pip install 'kmcl[litdata]'") from error
    refuse_vectors(dataset)
    require_new_folder(folder)
    counts: dict[str, int] = {}
    for name, split in dataset.splits.items():
        chunks = folder / name
        chunks.mkdir(parents=True)
        cache = Cache(str(chunks), chunk_size=images_per_chunk)
        for row in range(len(split)):
            content, _ = encoded_image(split.images, row)
            cache[row] = {"image": content, "labels": sample_json(dataset.labels, split, row)}
            if on_image is not None:
                on_image(1)
        cache.done()
        cache.merge()
        counts[f"{name}/{CHUNK_INDEX}"] = len(split)
    write_json(folder / INDEX, {"format": FORMAT, "labels": list(dataset.labels), "shards": counts})
    return [folder / name for name in counts]
