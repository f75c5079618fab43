"""Many requests, one model: images that wait together are scored together.

One thread owns the model. It takes whatever waits when it is free, up to a batch; while it computes, the next
batch gathers. Where more requests are on their way (being received or decoded) it gives them a moment to
arrive, so that a burst becomes one batch; a request that is alone never waits for others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kmcl.serving.image_predictor import BatchScores, Pixels
from kmcl.serving.service.errors import come_back

Explain = Callable[[Pixels, BatchScores], Any]
"""More work with a request's images on the thread that owns the model; its result goes with the scores."""


QUIET_SECONDS = 0.01
"""A batch is begun when no further request has arrived for that long, though some are on their way."""
GATHERING_SHARE = 0.5
"""And at the latest after this share of the time that a full batch takes."""


@dataclass(frozen=True)
class _Job:
    images: Pixels
    explain: Explain | None
    future: Future[tuple[BatchScores, Any]] = field(default_factory=Future)


class MicroBatcher:
    """Scores images on one thread of its own, in the order of the requests.

    score:       from B x S x S x 3 images to their scores
    batch_size:  most images at once; a larger request takes several rounds
    max_waiting: images that may wait; `submit` refuses what would exceed it
    on_batch:    told the number of images and the seconds of each round
    """

    def __init__(
        self,
        score: Callable[[Pixels], BatchScores],
        *,
        batch_size: int,
        max_waiting: int,
        on_batch: Callable[[int, float], None] = lambda images, seconds: None,
    ) -> None:
        self._score = score
        self._batch_size = batch_size
        self._max_waiting = max_waiting
        self._on_batch = on_batch
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        self._num_waiting = 0
        self._num_coming = 0
        self._closing = False
        self._seconds_per_image = 0.05
        self._thread = self._new_thread()

    def start(self) -> None:
        """Begin to work, at first or again after `close`."""
        if not self._thread.is_alive():
            self._closing = False
            self._thread = self._new_thread()
            self._thread.start()

    def _new_thread(self) -> threading.Thread:
        return threading.Thread(target=self._work, name="kmcl-model", daemon=True)

    @property
    def num_waiting(self) -> int:
        """Images that wait for the model."""
        return self._num_waiting

    @property
    def is_working(self) -> bool:
        """Whether images can be submitted."""
        return self._thread.is_alive() and not self._closing

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Tells, for as long as it lasts, that a request is on its way."""
        with self._changed:
            self._num_coming += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_coming -= 1
                self._changed.notify()

    def submit(self, images: Pixels, explain: Explain | None = None) -> Future[tuple[BatchScores, Any]]:
        """Scores of a request's images, and what `explain` made of them, once they are there.

        Cancel the future to take back a request that has not begun.
        """
        with self._changed:
            if not self.is_working:
                raise come_back("stopping", "the service is shutting down", 5, status=503)
            if self._num_waiting + len(images) > self._max_waiting:
                raise come_back(
                    "queue_full",
                    f"{self._num_waiting} images wait already, of at most {self._max_waiting}",
                    self.seconds_to_wait(),
                )
            job = _Job(images, explain)
            self._jobs.append(job)
            self._num_waiting += len(images)
            self._changed.notify()
        return job.future

    def seconds_to_wait(self) -> int:
        """After which half of what waits now should be done."""
        return max(1, round(0.5 * self._num_waiting * self._seconds_per_image))

    def close(self) -> None:
        """Accept nothing more, finish what was accepted, and return when that is done."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def _work(self) -> None:
        while jobs := self._take():
            running = [job for job in jobs if job.future.set_running_or_notify_cancel()]
            if not running:
                continue
            try:
                scores = self._score_all(np.concatenate([job.images for job in running]))
                self._hand_out(running, scores)
            except Exception as error:
                for job in running:
                    if not job.future.done():
                        job.future.set_exception(error)

    def _take(self) -> list[_Job]:
        """What waits, up to a batch; waits for something; nothing at the end."""
        with self._changed:
            while not self._jobs and not self._closing:
                self._changed.wait()
            self._gather()
            taken: list[_Job] = []
            num_images = 0
            while self._jobs and (not taken or num_images + len(self._jobs[0].images) <= self._batch_size):
                job = self._jobs.popleft()
                taken.append(job)
                num_images += len(job.images)
            self._num_waiting -= num_images
            return taken

    def _gather(self) -> None:
        """Wait a little for what is on its way, while the batch is not full."""
        longest = GATHERING_SHARE * self._batch_size * self._seconds_per_image
        end = time.monotonic() + longest
        while self._num_waiting < self._batch_size and self._num_coming and not self._closing:
            before = self._num_waiting, self._num_coming
            self._changed.wait(QUIET_SECONDS)
            if before == (self._num_waiting, self._num_coming) or time.monotonic() > end:
                return

    def _score_all(self, images: Pixels) -> BatchScores:
        parts = []
        for first in range(0, len(images), self._batch_size):
            batch = images[first : first + self._batch_size]
            start = time.perf_counter()
            parts.append(self._score(batch))
            seconds = time.perf_counter() - start
            self._seconds_per_image += 0.2 * (seconds / len(batch) - self._seconds_per_image)
            self._on_batch(len(batch), seconds)
        return _joined(parts)

    @staticmethod
    def _hand_out(jobs: Sequence[_Job], scores: BatchScores) -> None:
        first = 0
        waiting_for_more = []
        for job in jobs:
            part = slice(first, first + len(job.images))
            first = part.stop
            own = BatchScores(*(None if array is None else array[part] for array in scores))  # type: ignore[arg-type]
            if job.explain is None:
                job.future.set_result((own, None))
            else:
                waiting_for_more.append((job, job.explain, own))
        for job, explain, own in waiting_for_more:  # after the others, who need not wait for it
            try:
                job.future.set_result((own, explain(job.images, own)))
            except Exception as error:
                job.future.set_exception(error)


def _joined(parts: Sequence[BatchScores]) -> BatchScores:
    if len(parts) == 1:
        return parts[0]
    arrays = [
        None if any(array is None for array in arrays) else np.concatenate(arrays)
        for arrays in zip(*parts, strict=True)
    ]
    return BatchScores(*arrays)  # type: ignore[arg-type]
