"""What was predicted of the last images: the share of unfamiliar ones, and the rate of each label."""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

WINDOW_IMAGES = 1000

Flags = npt.NDArray[np.bool_]


class PredictionWindow:
    """Counts over the last `num_images` images; older ones are forgotten one by one.

    Not for several threads at once: the service counts on the thread of its event loop.
    """

    def __init__(self, num_labels: int, num_images: int = WINDOW_IMAGES) -> None:
        if num_images < 1:
            raise ValueError(f"num_images must be at least 1; got {num_images}")
        self._size = num_images
        self._rows: deque[tuple[Flags, bool]] = deque()
        self._present = np.zeros(num_labels, dtype=np.int64)
        self._num_unfamiliar = 0

    def add(self, present: Flags, unfamiliar: Flags | None) -> None:
        """Count B images: B x L decisions, and B decisions where the model gives an unfamiliarity."""
        flags = np.zeros(len(present), dtype=np.bool_) if unfamiliar is None else unfamiliar
        for row, flag in zip(present, flags.tolist(), strict=True):
            if len(self._rows) == self._size:
                old_row, old_flag = self._rows.popleft()
                self._present -= old_row
                self._num_unfamiliar -= old_flag
            self._rows.append((row, flag))
            self._present += row
            self._num_unfamiliar += flag

    @property
    def num_images(self) -> int:
        return len(self._rows)

    @property
    def unfamiliar_share(self) -> float:
        """NaN before the first image."""
        return self._num_unfamiliar / self.num_images if self._rows else float("nan")

    def label_rate(self, label: int) -> float:
        """The share of images in which the label is present; NaN before the first image."""
        return float(self._present[label] / self.num_images) if self._rows else float("nan")
