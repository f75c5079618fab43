"""The checks of `kmcl monitor` on the last images of the service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kmcl.evaluation.drift import Drift, PredictedImages, find_drift
from kmcl.serving.service.prediction_window import PredictionWindow

SECONDS = 10.0
"""Between two comparisons: each takes about 2 ms for every label."""


class DriftWatch:
    """Compares the images of a window with those of val, when asked and something has changed.

    The bound on false alarms is that of one comparison. Windows that follow each other share most of their
    images, but over many windows an alarm becomes more probable than the bound.
    """

    def __init__(
        self,
        labels: Sequence[str],
        val: PredictedImages,
        window: PredictionWindow,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._labels = labels
        self._val = val
        self._window = window
        self._clock = clock
        self._num_compared = 0
        self._last = -SECONDS
        self.drift: Drift | None = None
        """None before the first image."""

    async def update(self) -> Drift | None:
        """Compare on another thread, unless that was done for these images or a moment ago."""
        now = self._clock()
        if self._window.num_seen > self._num_compared and now - self._last >= SECONDS:
            self._num_compared, self._last = self._window.num_seen, now
            self.drift = await asyncio.to_thread(find_drift, self._labels, self._val, self._window.images())
        return self.drift
