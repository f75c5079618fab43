"""Images in the chunks of LitData, Lightning's format of streamed data; read by its own library.

A sample is a dictionary with `image`, the bytes of an image file, and `labels`, JSON as in the .json files of
tar shards. `litdata.optimize` writes such samples, and `kmcl data shard --form litdata`.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.encoded_images import decode_bytes
from kmcl.errors import InputError

ENCODED = ("bytes", "jpeg", "image", "file")
READABLE = (*ENCODED, "str", "text", "json", "int", "float", "bool")
"""LitData's names of what it can store, without those that would be unpickled, which can run code."""


class LitDataImages:
    """The samples of a folder of chunks with an index.json."""

    def __init__(self, place: str, length: int) -> None:
        self.place, self._length = place, length
        self._lock = threading.Lock()
        self._opened: tuple[int, Any] | None = None

    def __getstate__(self) -> tuple[str, int]:
        return self.place, self._length

    def __setstate__(self, state: tuple[str, int]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __len__(self) -> int:
        return self._length

    def name(self, index: int) -> str:
        return f"{self.place}[{index}]"

    def encoded(self, index: int) -> bytes:
        """The bytes of the image file."""
        content = self.sample(index).get("image")
        if not isinstance(content, bytes):
            raise InputError(f"{self.name(index)}: `image` must be the bytes of an image file")
        return content

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return decode_bytes(self.encoded(index), self.name(index), min_side)

    def sample(self, index: int) -> dict[str, Any]:
        """A sample as it was stored, image files as bytes."""
        with self._lock:
            # A process that was forked opens the chunks itself.
            if self._opened is None or self._opened[0] != os.getpid():
                self._opened = os.getpid(), _open(self.place)
            try:
                found = self._opened[1][index]
            except Exception as error:
                # LitData raises what its decoders raise.
                raise InputError(
                    f"{self.name(index)} cannot be read: {error or type(error).__name__}"
                ) from error
        if not isinstance(found, dict):
            raise InputError(f"{self.name(index)}: a sample must be a dictionary with `image` and `labels`")
        return found


def _open(place: str) -> Any:
    try:
        from litdata import StreamingDataset
        from litdata.streaming.serializers import (
            BytesSerializer,
        )
    except ImportError as error:
        raise InputError(f"{place}: needs the package litdata: pip install 'kmcl[litdata]'") from error
    # Files stay as they are, and are decoded like all others.
    as_bytes = {name: BytesSerializer() for name in ENCODED}
    return StreamingDataset(place, shuffle=False, serializers=as_bytes)


def check_index(index: Any, place: str | Path) -> int:
    """The number of samples of an index.json; InputError for what cannot be read, or must not be."""
    try:
        config = index["config"]
        formats = [str(name) for name in config["data_format"]]
        length = sum(int(chunk["chunk_size"]) for chunk in index["chunks"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{place}: its index.json is not LitData's: {error!r}") from None
    for name in formats:
        if name.partition(":")[0] not in READABLE:
            raise InputError(
                f"{place}: has values stored as {name!r}, which are not read; store the image file as bytes "
                "and the labels as JSON text"
            )
    if config.get("item_loader") not in (None, "PyTreeLoader"):
        raise InputError(f"{place}: is read by {config['item_loader']}, and samples need the PyTreeLoader")
    return length
