"""Rows of an array in a file, read when they are wanted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[Any]


class FileRows:
    """An array `num_rows` x `row_shape` whose rows are read from its file one by one.

    Nothing of the file becomes memory of the process. Of a mapped file every page that was touched counts as
    such, and systems with large pages touch most of a file for a few of its rows.

        rows = FileRows(path, num_rows, (1280,), np.dtype("<f2"))
        some = rows.take(np.array([7, 3]), axis=0)      # as of an array
        everything = np.asarray(rows)
    """

    def __init__(self, path: Path, num_rows: int, row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = (num_rows, *row_shape)
        self.dtype = dtype
        self._file = path.open("rb", buffering=0)
        self._row_bytes = dtype.itemsize * int(np.prod(row_shape))

    def __len__(self) -> int:
        return self.shape[0]

    def take(self, indices: npt.NDArray[np.int64], axis: int = 0) -> Rows:
        """The rows of these indices, in their order."""
        if axis != 0:
            raise ValueError(f"axis must be 0; got {axis}")
        taken = np.empty((len(indices), *self.shape[1:]), dtype=self.dtype)
        for slot, index in enumerate(indices.tolist()):
            if not 0 <= index < len(self):
                raise IndexError(f"row {index} of {len(self)}")
            data = self._read(index * self._row_bytes)
            if len(data) != self._row_bytes:
                raise OSError(f"{self._file.name}: row {index} is cut off")
            taken[slot] = np.frombuffer(data, dtype=self.dtype).reshape(self.shape[1:])
        return taken

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Rows:
        return self.take(np.arange(len(self))).astype(dtype or self.dtype, copy=False)

    def _read(self, offset: int) -> bytes:
        if hasattr(os, "pread"):  # without an offset that processes could share
            return os.pread(self._file.fileno(), self._row_bytes, offset)
        self._file.seek(offset)
        return self._file.read(self._row_bytes)
