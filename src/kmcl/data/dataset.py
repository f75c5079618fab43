"""What every reader returns: splits of images with their targets; images are decoded only on access."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

UNKNOWN = -1

SPLIT_NAMES = ("train", "val", "test")


class ImageStore(Protocol):
    """Images by position, wherever they are stored (files, an array in memory, an archive).

    Stores are picklable and cheap to copy to a worker process.
    """

    def __len__(self) -> int: ...

    def name(self, index: int) -> str:
        """The name of the image for users: its path, or `file.npz[12]`."""
        ...

    def load(self, index: int, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        """Decode one image to height x width x 3 uint8 RGB; raise InputError naming the file if that fails.

        With `min_side`, the store may return a cheaper, smaller decoding whose shorter side is still at
        least that many pixels (JPEG draft mode).
        """
        ...


@dataclass(frozen=True)
class StoredImage:
    """One image of a store."""

    store: ImageStore
    index: int

    @property
    def name(self) -> str:
        return self.store.name(self.index)

    def load(self, min_side: int | None = None) -> npt.NDArray[np.uint8]:
        return self.store.load(self.index, min_side)


@dataclass(frozen=True)
class Split:
    """One split: images and targets in a fixed order.

    targets: N x L int8, 1 present, 0 absent, UNKNOWN (-1) not annotated.
    ignored: N x L bool, pairs that evaluation excludes although they have a target (VOC's difficult objects).
    groups:  N strings or None; images of one group (a patient) must not be in two splits.
    lines:   N line numbers in the label file, or None if it has no lines.
    """

    images: ImageStore
    targets: npt.NDArray[np.int8]
    ignored: npt.NDArray[np.bool_] | None = None
    groups: npt.NDArray[np.str_] | None = None
    lines: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def trusted_targets(self) -> npt.NDArray[np.int8]:
        """The targets, UNKNOWN where evaluation excludes them."""
        return (
            self.targets if self.ignored is None else np.where(self.ignored, np.int8(UNKNOWN), self.targets)
        )


@dataclass(frozen=True)
class Dataset:
    """A named dataset with its labels and splits. `val` may be missing if the source has none.

    notes: what the reader left out or took for granted, a sentence each, for `kmcl data check` and `describe`
    parents: the labels that each label implies, by name; empty where nothing is known
    """

    name: str
    labels: tuple[str, ...]
    splits: dict[str, Split]
    notes: tuple[str, ...] = ()
    parents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def num_labels(self) -> int:
        return len(self.labels)
