"""Images whose encoded bytes (JPEG, PNG, ...) are in a column of Parquet or Arrow files."""

from __future__ import annotations

import threading
from collections import OrderedDict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.files import load_rgb
from kmcl.data.image_formats import open_image
from kmcl.errors import InputError

CACHED_BYTES = 1 << 28
"""Encoded images of the row groups read last, kept for the next access."""


def decode_bytes(content: bytes, name: str, min_side: int | None = None) -> npt.NDArray[np.uint8]:
    """Decode the bytes of an image file, as `kmcl.data.files.decode_image` does; `name` is for messages."""
    try:
        with open_image(BytesIO(content)) as image:
            return load_rgb(image, min_side)
    except MemoryError:
        raise
    except Exception as error:
        # Pillow's decoders raise OSError, SyntaxError, ValueError, struct.error, zlib.error and others.
        raise InputError(f"image {name} cannot be decoded: {error or type(error).__name__}") from error


class ParquetImages:
    """The images of one column of a Parquet file; a row group is read when one of its images is.

    column: of bytes, or `column.bytes` of a struct, as Hugging Face's `datasets` writes
    starts: the first row of each row group, and at the end the number of rows
    """

    def __init__(self, path: Path, column: str, starts: npt.NDArray[np.int64]) -> None:
        self.path, self.column, self.starts = path, column, starts
        self._lock = threading.Lock()
        self._groups: OrderedDict[int, Any] = OrderedDict()

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "column": self.column, "starts": self.starts}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __len__(self) -> int:
        return int(self.starts[-1])

    def name(self, index: int) -> str:
        return f"{self.path}[{index}]"

    def encoded(self, index: int) -> bytes:
        group = int(np.searchsorted(self.starts, index, side="right")) - 1
        with self._lock:
            content = self._group(group)[index - int(self.starts[group])].as_py()
        return _filled(content, self.name(index))

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return decode_bytes(self.encoded(index), self.name(index), min_side)

    def _group(self, group: int) -> Any:
        """The encoded images of a row group, an array of pyarrow."""
        if group in self._groups:
            self._groups.move_to_end(group)
            return self._groups[group]
        import pyarrow.parquet as pq

        name, _, inner = self.column.partition(".")
        try:
            # Threads of pyarrow do not survive the fork of a loading worker.
            table = pq.ParquetFile(self.path).read_row_group(group, [self.column], use_threads=False)
        except Exception as error:  # pyarrow's errors have no base but Exception
            raise InputError(f"table {self.path} is not a readable Parquet file: {error}") from error
        chunk = table.column(name).combine_chunks()
        self._groups[group] = chunk.field(inner) if inner else chunk
        while len(self._groups) > 1 and sum(one.nbytes for one in self._groups.values()) > CACHED_BYTES:
            self._groups.popitem(last=False)
        return self._groups[group]


class ArrowImages:
    """The images of one column of an Arrow stream, as `save_to_disk` of `datasets` writes; it is mapped.

    column: as for `ParquetImages`
    """

    def __init__(self, path: Path, column: str, num_images: int) -> None:
        self.path, self.column, self.num_images = path, column, num_images
        self._cells: list[Any] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "column": self.column, "num_images": self.num_images}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __len__(self) -> int:
        return self.num_images

    def name(self, index: int) -> str:
        return f"{self.path}[{index}]"

    def encoded(self, index: int) -> bytes:
        if self._cells is None:
            name, _, inner = self.column.partition(".")
            chunks = open_arrow(self.path).column(name).chunks
            self._cells = [chunk.field(inner) for chunk in chunks] if inner else chunks
        for chunk in self._cells:
            if index < len(chunk):
                return _filled(chunk[index].as_py(), self.name(index))
            index -= len(chunk)
        raise IndexError(index)

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return decode_bytes(self.encoded(index), self.name(index), min_side)


def open_arrow(path: Path) -> Any:
    """A table of pyarrow over the file; its cells are read when they are accessed.

    Where they begin is checked at once: pyarrow would follow wrong positions out of the file.
    """
    import pyarrow as pa

    table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
    table.validate(full=True)
    return table


def _filled(content: bytes | None, name: str) -> bytes:
    if not content:
        raise InputError(f"image {name} cannot be decoded: its cell is empty")
    return content
