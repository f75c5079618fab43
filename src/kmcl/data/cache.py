"""The image cache: every image decoded and resized once, then read as plain bytes.

`open_cached` decodes the whole split to its working size before the first batch, with one thread per core,
into one uint8 array in memory or in a file. Training then decodes nothing, not even in its first epoch, and
an unreadable image is found at the start of a run instead of in the middle of it. Batches are bit-identical
to those of the uncached loader.

A cache that does not fit into memory or on the disk is not an error: a `CacheWarning` says how much was
needed, and images are decoded again for each batch.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kmcl.cores import available_cores
from kmcl.data.augmentation import Pixels
from kmcl.data.dataset import ImageStore
from kmcl.data.decoding import DecodedImages, ImageSource, Progress, Rows, decode_many
from kmcl.data.source_cache import cache_folder
from kmcl.errors import InputError
from kmcl.storage.atomic import WriteError, require_space
from kmcl.storage.chunk_file import Chunk, ChunkFile

CacheKind = Literal["none", "memory", "disk"]
CACHE_KINDS: tuple[CacheKind, ...] = ("none", "memory", "disk")

# Memory reserved for the rest of the program when deciding on a cache in memory.
SPARE_MEMORY = 1 << 30


class CacheWarning(UserWarning):
    """The cache could not be used; the run continues, more slowly."""


class MemoryImages:
    """Decoded images in a tensor rather than an array: workers share a tensor instead of copying it."""

    def __init__(self, pixels: Tensor, problems: dict[int, str]) -> None:
        self._pixels, self._problems = pixels, problems

    def __len__(self) -> int:
        return len(self._pixels)

    def rows(self, indices: npt.NDArray[np.int64]) -> Rows:
        pixels = np.take(self._pixels.numpy(), indices, axis=0)
        return Rows(pixels, _problem_slots(indices, self._problems))


class DiskImages:
    """Decoded images in a file mapped into memory; every process of the machine shares its pages."""

    def __init__(self, path: Path, num_images: int, size: int, problems: dict[int, str]) -> None:
        self._path, self._shape, self._problems = path, (num_images, size, size, 3), problems
        self._pixels = self._map()

    def _map(self) -> Pixels:
        return np.memmap(self._path, dtype=np.uint8, mode="r", shape=self._shape)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._pixels = self._map()

    def __len__(self) -> int:
        return self._shape[0]

    def rows(self, indices: npt.NDArray[np.int64]) -> Rows:
        pixels = np.take(self._pixels, indices, axis=0)
        return Rows(pixels, _problem_slots(indices, self._problems))


def _problem_slots(indices: npt.NDArray[np.int64], problems: dict[int, str]) -> dict[int, str]:
    if not problems:
        return {}
    return {slot: problems[index] for slot, index in enumerate(indices.tolist()) if index in problems}


def open_cached(
    store: ImageStore,
    size: int,
    kind: CacheKind,
    *,
    cache_dir: Path | None = None,
    skip_bad_images: bool = False,
    on_progress: Progress | None = None,
) -> ImageSource:
    """The images of `store` at `size` x `size`, from a cache of the given kind if possible.

    on_progress is called with (images done, images in all) while the cache is filled. Without
    `skip_bad_images` the first unreadable image raises InputError.
    """
    if kind == "none":
        return DecodedImages(store, size)
    needed = len(store) * size * size * 3
    try:
        if kind == "memory":
            return _in_memory(store, size, needed, skip_bad_images, on_progress)
        folder = cache_dir if cache_dir is not None else cache_folder() / "images"
        return _on_disk(store, size, folder, skip_bad_images, on_progress)
    except OSError as error:
        advice = (
            "cache='disk' needs less memory"
            if kind == "memory"
            else "choose another cache_dir, or free some space"
        )
        reason = error if isinstance(error, WriteError) else error.strerror or error
        warnings.warn(
            f"no cache ({kind}) of {needed / 1e9:.2f} GB for {len(store)} images: {reason}; "
            f"continuing without it ({advice})",
            CacheWarning,
            stacklevel=2,
        )
        return DecodedImages(store, size)


def _in_memory(
    store: ImageStore, size: int, needed: int, skip_bad_images: bool, on_progress: Progress | None
) -> MemoryImages:
    available = available_memory()
    if available is not None and needed > available - SPARE_MEMORY:
        raise OSError(None, f"only {available / 1e9:.2f} GB of memory are available")
    pixels = np.empty((len(store), size, size, 3), dtype=np.uint8)
    problems: dict[int, str] = {}
    for index, outcome in enumerate(decode_many(store, range(len(store)), size, available_cores())):
        if isinstance(outcome, str):
            problems[index] = outcome
            if not skip_bad_images:
                raise InputError(outcome)
        else:
            pixels[index] = outcome
        if on_progress is not None:
            on_progress(index + 1, len(store))
    return MemoryImages(torch.from_numpy(pixels), problems)


def _on_disk(
    store: ImageStore, size: int, folder: Path, skip_bad_images: bool, on_progress: Progress | None
) -> DiskImages:
    file = CacheFile(folder / f"{content_key(store, size)}.pixels", len(store), size)
    problems = file.complete(store, skip_bad_images=skip_bad_images, on_progress=on_progress)
    return DiskImages(file.path, len(store), size, problems)


def available_memory() -> int | None:
    """Bytes that can be allocated without swapping, within the container's limit; None where unknown."""
    bounds: list[int] = []
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        bounds.extend(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    with contextlib.suppress(OSError, ValueError):  # no limit is written as "max"
        limit = int(Path("/sys/fs/cgroup/memory.max").read_text())
        bounds.append(limit - int(Path("/sys/fs/cgroup/memory.current").read_text()))
    return min(bounds) if bounds else None


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
