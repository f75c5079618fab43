"""Micro-batching: images of several requests are scored together.

A few threads run the model. An idle thread takes its share of the queued images, up to a batch; while the
threads compute, the next batches queue up. Where a model is faster on larger batches and more requests are
incoming (being received or decoded), the thread waits a moment for them, so that a burst becomes one batch. A
single request never waits for others, and a request with many images is spread over the threads.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.predictions import Pixels
from kmcl.serving.service.errors import retry_later

Explain = Callable[[Pixels, BatchScores], Any]
"""Extra work on a request's images, on a thread of the model; its result is returned with the scores."""


QUIET_SECONDS = 0.01
"""A batch starts when no further request has arrived for this long, although some are incoming."""
GATHERING_SHARE = 0.5
"""And at the latest after this share of the duration of a full batch."""


@dataclass(eq=False)
class _Request:
    """parts: the scores of each piece; None until they are computed."""

    images: Pixels
    explain: Explain | None
    parts: list[BatchScores | None]
    future: Future[tuple[BatchScores, Any]] = field(default_factory=Future)

    @property
    def is_scored(self) -> bool:
        return all(part is not None for part in self.parts)

    def begin(self) -> bool:
        """Whether the request still waits for an answer; after this call it cannot be cancelled."""
        return self.future.running() or (
            not self.future.done() and self.future.set_running_or_notify_cancel()
        )

    def finish(self) -> None:
        scores = _joined([part for part in self.parts if part is not None])
        self.future.set_result((scores, None if self.explain is None else self.explain(self.images, scores)))

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):  # another piece may fail at the same time
            self.future.set_exception(error)


@dataclass(frozen=True, eq=False)
class _Piece:
    """Images of a request that are scored in one batch."""

    request: _Request
    number: int
    images: Pixels


class MicroBatcher:
    """Scores images on threads of its own, in the order of the requests.

    score:       from B x S x S x 3 images to their scores; several threads may call it at once
    batch_size:  maximum number of images per batch; a larger request takes several batches
    max_waiting: maximum number of queued images; `submit` refuses what would exceed it
    num_threads: number of threads that score
    gathers:     whether to wait a moment for incoming requests
    on_batch:    called with the number of images and the seconds of each batch
    """

    def __init__(
        self,
        score: Callable[[Pixels], BatchScores],
        *,
        batch_size: int,
        max_waiting: int,
        num_threads: int = 1,
        gathers: bool = True,
        on_batch: Callable[[int, float], None] = lambda images, seconds: None,
    ) -> None:
        self._score = score
        self._batch_size = batch_size
        self._max_waiting = max_waiting
        self._num_threads = num_threads
        self._gathers = gathers
        self._on_batch = on_batch
        self._pieces: deque[_Piece] = deque()
        self._changed = threading.Condition()
        self._num_waiting = 0
        self._num_incoming = 0
        self._num_free = 0
        self._closing = False
        self._seconds_per_image = 0.05
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start the threads, for the first time or again after `close`."""
        if any(thread.is_alive() for thread in self._threads):
            return
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, name=f"kmcl-model-{number}", daemon=True)
            for number in range(self._num_threads)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def num_waiting(self) -> int:
        """Number of images in the queue."""
        return self._num_waiting

    @property
    def is_working(self) -> bool:
        """Whether images can be submitted."""
        return not self._closing and any(thread.is_alive() for thread in self._threads)

    @contextmanager
    def incoming(self) -> Iterator[None]:
        """Announces, while it is entered, that a request is incoming."""
        if not self._gathers:
            yield
            return
        with self._changed:
            self._num_incoming += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_incoming -= 1
                self._changed.notify_all()

    def submit(self, images: Pixels, explain: Explain | None = None) -> Future[tuple[BatchScores, Any]]:
        """Queue a request's images; the future gives their scores and the result of `explain`.

        Cancelling the future withdraws a request that has not started.
        """
        if not len(images):
            raise ValueError("a request must have at least one image")
        with self._changed:
            if not self.is_working:
                raise retry_later("stopping", "the service is shutting down", 5, status=503)
            if self._num_waiting + len(images) > self._max_waiting:
                raise retry_later(
                    "queue_full",
                    f"the queue holds {self._num_waiting} images, of at most {self._max_waiting}",
                    self.seconds_to_wait(),
                )
            size = min(self._batch_size, _shared(len(images), self._num_threads))
            firsts = range(0, len(images), size)
            request = _Request(images, explain, [None] * len(firsts))
            for number, first in enumerate(firsts):
                self._pieces.append(_Piece(request, number, images[first : first + size]))
            self._num_waiting += len(images)
            # A gathering thread waits too, and could consume the notification meant for an idle one.
            self._changed.notify(self._num_threads if self._gathers else len(firsts))
        return request.future

    def seconds_to_wait(self) -> int:
        """Estimated seconds until half of the queue is done."""
        return max(1, round(0.5 * self._num_waiting * self._seconds_per_image / self._num_threads))

    def close(self) -> None:
        """Refuse new requests, finish the accepted ones, and return."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while pieces := self._take():
            try:
                complete = self._score_pieces(pieces)
            except Exception as error:
                for piece in pieces:
                    piece.request.fail(error)
                continue
            # Requests with extra work last, so that the others need not wait for it.
            for request in sorted(complete, key=lambda request: request.explain is not None):
                try:
                    request.finish()
                except Exception as error:
                    request.fail(error)

    def _take(self) -> list[_Piece]:
        """Wait for images and take this thread's share of them, up to a batch; empty when closed."""
        with self._changed:
            self._num_free += 1
            taken: list[_Piece] = []
            while not taken:
                while not self._pieces and not self._closing:
                    self._changed.wait()
                if not self._pieces:
                    break  # closed, and the queue is empty
                if self._gathers:
                    self._gather()  # another thread may take everything meanwhile
                taken = self._take_share()
            self._num_free -= 1
            return taken

    def _take_share(self) -> list[_Piece]:
        share = min(self._batch_size, _shared(self._num_waiting, self._num_free))
        taken: list[_Piece] = []
        num_images = 0
        while self._pieces and (not taken or num_images + len(self._pieces[0].images) <= share):
            piece = self._pieces.popleft()
            self._num_waiting -= len(piece.images)
            if piece.request.begin():
                taken.append(piece)
                num_images += len(piece.images)
        return taken

    def _gather(self) -> None:
        """Wait a moment for incoming requests, while the batch is not full."""
        longest = GATHERING_SHARE * self._batch_size * self._seconds_per_image
        end = time.monotonic() + longest
        while self._num_waiting < self._batch_size and self._num_incoming and not self._closing:
            before = self._num_waiting, self._num_incoming
            self._changed.wait(QUIET_SECONDS)
            if before == (self._num_waiting, self._num_incoming) or time.monotonic() > end:
                return

    def _score_pieces(self, pieces: Sequence[_Piece]) -> list[_Request]:
        """Score pieces as one batch; returns the requests that are complete now."""
        images = np.concatenate([piece.images for piece in pieces])
        start = time.perf_counter()
        scores = self._score(images)
        seconds = time.perf_counter() - start
        self._on_batch(len(images), seconds)
        first = 0
        with self._changed:
            self._seconds_per_image += 0.2 * (seconds / len(images) - self._seconds_per_image)
            complete = []
            for piece in pieces:
                part = slice(first, first + len(piece.images))
                first = part.stop
                request = piece.request
                request.parts[piece.number] = BatchScores(
                    *(None if array is None else array[part] for array in scores)  # type: ignore[arg-type]
                )
                if request.is_scored:
                    complete.append(request)
            return complete


def _shared(number: int, among: int) -> int:
    """The largest of `among` equal shares."""
    return -(-number // among)


def _joined(parts: Sequence[BatchScores]) -> BatchScores:
    if len(parts) == 1:
        return parts[0]
    arrays = [
        None if any(array is None for array in arrays) else np.concatenate(arrays)
        for arrays in zip(*parts, strict=True)
    ]
    return BatchScores(*arrays)  # type: ignore[arg-type]
