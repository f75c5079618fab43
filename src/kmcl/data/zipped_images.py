"""Images inside a zip archive, read without unpacking it."""

from __future__ import annotations

import os
import threading
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.encoded_images import decode_bytes
from kmcl.errors import InputError
from kmcl.storage.archives import ARCHIVE_ERRORS


class ZippedImages:
    """Images of an archive by the names of its members."""

    def __init__(self, path: Path, names: npt.NDArray[np.str_]) -> None:
        self.path, self.names = path, names
        self._lock = threading.Lock()
        self._opened: tuple[int, zipfile.ZipFile] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {"path": self.path, "names": self.names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        return f"{self.path}/{self.names[index]}"

    def encoded(self, index: int) -> bytes:
        """The file as it is in the archive."""
        try:
            with self._lock:
                return self._archive().read(str(self.names[index]))
        except KeyError:
            raise InputError(f"image {self.name(index)} does not exist") from None
        except ARCHIVE_ERRORS as error:
            raise InputError(f"image {self.name(index)} cannot be read: {error}") from error

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return decode_bytes(self.encoded(index), self.name(index), min_side)

    def _archive(self) -> zipfile.ZipFile:
        # Forked workers share the position in an open file: each process opens its own.
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), zipfile.ZipFile(self.path)
        return self._opened[1]
