"""Searching the chunks of LitData for labels."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np

from kmcl.data.litdata_images import LitDataImages, check_index
from kmcl.data.readers.sample_labels import LabelPairs, SampleLabels
from kmcl.data.shard_places import CHUNK_INDEX, read_text
from kmcl.data.source_cache import Arrays
from kmcl.data.tar_images import Archive
from kmcl.errors import InputError
from kmcl.storage.s3 import S3Object


def open_chunks(index: Archive) -> LitDataImages:
    """The samples beside an index.json; refuses what would be unpickled, and chunks in S3."""
    if isinstance(index, S3Object):
        raise InputError(f"{index}: chunks of LitData are read from a disk; in S3 use tar shards")
    place = str(index).removesuffix(CHUNK_INDEX).rstrip("/")
    try:
        found = json.loads(read_text(index))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{index} cannot be read: {error}") from None
    return LitDataImages(place, check_index(found, place))


def search_chunks(indices: Sequence[Archive]) -> Arrays:
    """The labels of every sample, which are read once, with their images, one after the other."""
    pairs = LabelPairs()
    places: list[tuple[int, int]] = []
    for number, index in enumerate(indices):
        images = open_chunks(index)
        for row in range(len(images)):
            pairs.add(_labels(images, row))
            places.append((number, row))
    if not places:
        raise InputError(f"{indices[0]}: has no sample")
    return {"places": np.array(places, dtype=np.int64), **pairs.arrays()}


def _labels(images: LitDataImages, row: int) -> SampleLabels:
    value = images.sample(row).get("labels")
    try:
        return SampleLabels.parse(value if isinstance(value, str) else json.dumps(value))
    except (ValueError, TypeError, RecursionError) as error:
        example = '{"labels": ["cat", "dog"]}'
        raise InputError(f"{images.name(row)}: `labels` must be JSON as in {example}: {error}") from None
