"""Images decoded and resized to squares of the working size, with the problems of unreadable ones.

The square ignores the aspect ratio, as the ASL recipe and the paper do: nothing at the border is lost, and a
label may depend on something there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from kmcl.data.augmentation import Pixels, resize
from kmcl.data.dataset import ImageStore
from kmcl.errors import InputError

Progress = Callable[[int, int], None]


class Rows(NamedTuple):
    """Images of one request, in its order.

    pixels: B x size x size x 3 uint8. problems: the reason for each slot whose image could not be read; its
    pixels are undefined.
    """

    pixels: Pixels
    problems: dict[int, str]


class ImageSource(Protocol):
    """Images of one size by index: decoded on request, or from a cache. Picklable."""

    def __len__(self) -> int: ...

    def rows(self, indices: npt.NDArray[np.int64]) -> Rows: ...


def decode_square(store: ImageStore, index: int, size: int) -> Pixels:
    """One image as size x size x 3 uint8; InputError naming the file if it cannot be decoded."""
    image = store.load(index, min_side=size)
    if image.shape[:2] == (size, size):
        return image
    # Torch warns about arrays it cannot write to, even when it does not.
    return resize(image if image.flags.writeable else image.copy(), size, size)


class DecodedImages:
    """Decodes on every request; with `num_threads` above 1, a request's images in parallel.

    Threads help because Pillow and torch release the GIL while they decode and resize.
    """

    def __init__(self, store: ImageStore, size: int, *, num_threads: int = 1) -> None:
        self._store, self._size, self._num_threads = store, size, num_threads

    def __len__(self) -> int:
        return len(self._store)

    def rows(self, indices: npt.NDArray[np.int64]) -> Rows:
        pixels = np.empty((len(indices), self._size, self._size, 3), dtype=np.uint8)
        problems: dict[int, str] = {}
        outcomes = decode_many(self._store, [int(i) for i in indices], self._size, self._num_threads)
        for slot, outcome in enumerate(outcomes):
            if isinstance(outcome, str):
                problems[slot] = outcome
            else:
                pixels[slot] = outcome
        return Rows(pixels, problems)


def decode_many(
    store: ImageStore, indices: Sequence[int], size: int, num_threads: int
) -> Iterator[Pixels | str]:
    """Each image, or the sentence that says why it cannot be decoded, in order."""

    def outcome(index: int) -> Pixels | str:
        try:
            return decode_square(store, index, size)
        except InputError as error:
            return str(error)

    if num_threads == 1:
        yield from map(outcome, indices)
        return
    with ThreadPoolExecutor(num_threads, thread_name_prefix="decode") as pool:
        # In chunks: the pool would otherwise run ahead and hold every decoded image in memory.
        piece = 64 * num_threads
        for start in range(0, len(indices), piece):
            yield from pool.map(outcome, indices[start : start + piece])
