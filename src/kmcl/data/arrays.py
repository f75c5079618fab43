"""Images as one array: in memory, or mapped from a .npy file that is too large for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kmcl.errors import InputError


def _as_rgb(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if pixels.shape[2] == 1:
        return np.repeat(pixels, 3, axis=2)
    return np.array(pixels)


@dataclass(frozen=True)
class ArrayImages:
    """Images in memory: `pixels` is N x H x W (grey) or N x H x W x 3 uint8, `source` names them."""

    pixels: npt.NDArray[np.uint8]
    source: str

    def __len__(self) -> int:
        return len(self.pixels)

    def name(self, index: int) -> str:
        return f"{self.source}[{index}]"

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return _as_rgb(self.pixels[index])


@dataclass(frozen=True)
class MappedImages:
    """The same over a memory-mapped .npy file; pickled as a path."""

    path: Path
    source: str
    num_images: int = field(repr=False)

    @cached_property
    def _pixels(self) -> npt.NDArray[np.uint8]:
        try:
            pixels: npt.NDArray[np.uint8] = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InputError(f"unpacked images {self.path} cannot be read: {error}") from error
        return pixels

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "_pixels"}

    def __len__(self) -> int:
        return self.num_images

    def name(self, index: int) -> str:
        return f"{self.source}[{index}]"

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return _as_rgb(self._pixels[index])
