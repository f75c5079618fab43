"""Prediction of many images on all cores.

Each batch is decoded, scored and described on one thread, and there is a thread for each core: none waits for
another, and decoding takes from the model no more than the time it needs. Pillow, torch and onnxruntime
release Python's lock while they compute.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from threading import Semaphore

from kmcl.cores import available_cores
from kmcl.errors import InputError
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.predictions import ImageLike, ImagePrediction
from kmcl.serving.throughput import best_batch_size, optimised, runs_on_cpu, shared_cores

BATCHES_AHEAD = 2
"""Batches of each thread that are being computed or wait to be written; they bound the memory."""


def predict_in_parallel(
    predictor: ImagePredictor, images: Iterable[ImageLike], batch_size: int | None = None
) -> Iterator[ImagePrediction]:
    """Like `ImagePredictor.predict_each`, on every core; `images` is read as far as batches are begun.

    batch_size: chosen by the size of the images if not given
    """
    if batch_size is not None and batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")
    fast = optimised(predictor)
    size = batch_size or best_batch_size(fast)
    num_threads = available_cores()
    on_cpu = runs_on_cpu(fast)
    # A GPU takes one batch at a time, while the other threads decode.
    model = Semaphore(num_threads if on_cpu else 1)
    remaining = iter(images)
    with (
        shared_cores(fast, num_threads if on_cpu else 1),
        ThreadPoolExecutor(num_threads, thread_name_prefix="kmcl-predict") as pool,
    ):
        running: deque[Future[list[ImagePrediction]]] = deque()
        try:
            while True:
                while len(running) < BATCHES_AHEAD * num_threads and (batch := list(islice(remaining, size))):
                    running.append(pool.submit(fast.predict_batch, batch, model))
                if not running:
                    return
                yield from running.popleft().result()
        finally:
            for future in running:
                future.cancel()
