"""The file of a disk cache of decoded images, and the key that names it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from kmcl.cores import available_cores
from kmcl.data.dataset import ImageStore
from kmcl.data.decoding import Progress, decode_many
from kmcl.errors import InputError
from kmcl.storage.atomic import require_space
from kmcl.storage.chunk_file import Chunk, ChunkFile

# Part of the key: raise it when a change of decoding or resizing changes the pixels, or the file layout
# changes.
CACHE_VERSION = 2

NUM_SAMPLED_IMAGES = 8


def content_key(store: ImageStore, size: int) -> str:
    """A name for these images at this size that changes when the images do.

    It covers all names, the size and time of those that are files, and the pixels of a few images spread over
    the store, which distinguish stores whose images are not files (a generated set with another seed).
    """
    digest = hashlib.sha256(f"{CACHE_VERSION} {size} {len(store)}".encode())
    for index in range(len(store)):
        name = store.name(index)
        state = None
        with contextlib.suppress(OSError, ValueError):
            state = os.stat(name)
            # A run opens its images by the path that was given, and by an absolute one when it is resumed.
            name = os.path.abspath(name)
        digest.update(f"\0{name}".encode())
        if state is not None:
            digest.update(f"\0{state.st_size} {state.st_mtime_ns}".encode())
    sampled = sorted({int(i) for i in np.linspace(0, len(store) - 1, min(NUM_SAMPLED_IMAGES, len(store)))})
    for outcome in decode_many(store, sampled, size, num_threads=1):
        digest.update(outcome.encode() if isinstance(outcome, str) else outcome.tobytes())
    return digest.hexdigest()[:32]


class CacheFile:
    """The decoded images of a store in one chunk file: a row of size x size x 3 bytes and a checksum each."""

    def __init__(self, path: Path, num_images: int, size: int) -> None:
        self.path = path
        self._num_images, self._size = num_images, size
        self._file = ChunkFile(
            path,
            num_images,
            (size, size, 3),
            dtype="|u1",
            chunk_rows=1,
            about={"what": "decoded images", "version": CACHE_VERSION},
        )

    def complete(
        self, store: ImageStore, *, skip_bad_images: bool, on_progress: Progress | None = None
    ) -> dict[int, str]:
        """Decode the missing images; returns index -> problem for each image that cannot be read.

        Images that could not be read last time are tried again. Raises WriteError if the file cannot be
        written, and removes the partial file: the run continues without it and may need the space. Raises
        InputError for an unreadable image unless `skip_bad_images`.
        """

        def decode(indices: Sequence[int]) -> Iterator[Chunk]:
            require_space(self.path, len(indices) * self._size**2 * 3)
            outcomes = decode_many(store, indices, self._size, available_cores())
            for count, (index, outcome) in enumerate(zip(indices, outcomes, strict=True), start=1):
                if not isinstance(outcome, str):
                    yield Chunk(outcome, {})
                elif skip_bad_images:
                    yield Chunk(np.zeros((self._size, self._size, 3), dtype=np.uint8), {index: outcome})
                else:
                    raise InputError(outcome)
                if on_progress is not None:
                    on_progress(self._num_images - len(indices) + count, self._num_images)

        def is_readable(index: int) -> bool:
            (outcome,) = decode_many(store, [index], self._size, num_threads=1)
            return not isinstance(outcome, str)

        unreadable = self._file.complete(decode, is_readable=is_readable, keep_partial=False)
        if unreadable and not skip_bad_images:
            raise InputError(next(iter(unreadable.values())))
        return unreadable
