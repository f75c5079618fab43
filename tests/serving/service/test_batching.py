"""Micro-batching: order, gathering, large requests, failures, and an end that loses nothing."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.service.batching import MicroBatcher
from kmcl.serving.service.errors import ServiceError
from kmcl.serving.service.pace import best_batch_size


def images(*values: int) -> np.ndarray:
    """Images of one pixel that carry a number, by which their scores are known."""
    return np.array(values, dtype=np.uint8).reshape(-1, 1, 1, 1)


class Scorer:
    """Gives each image its number as score; remembers the batches; can be held."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, batch: np.ndarray) -> BatchScores:
        self.batches.append(batch.ravel().tolist())
        assert self.go.wait(20)
        if 99 in self.batches[-1]:
            raise ValueError("99")
        values = batch.reshape(-1, 1).astype(np.float32)
        return BatchScores(values, values / 255, None)


@pytest.fixture
def scorer() -> Scorer:
    return Scorer()


def start(scorer: Scorer, batch_size: int = 4, max_waiting: int = 100) -> MicroBatcher:
    batcher = MicroBatcher(scorer, batch_size=batch_size, max_waiting=max_waiting)
    batcher.start()
    return batcher


def hold_with_one(batcher: MicroBatcher, scorer: Scorer):
    """Keep the model busy, so that what follows waits together."""
    scorer.go.clear()
    first = batcher.submit(images(0))
    while not scorer.batches:
        time.sleep(0.001)
    return first


def test_what_waits_is_scored_together_and_goes_to_whom_it_belongs(scorer: Scorer):
    batcher = start(scorer)
    first = hold_with_one(batcher, scorer)
    futures = [batcher.submit(images(*values)) for values in ([1, 2], [3], [4, 5], [6])]
    assert batcher.num_waiting == 6
    scorer.go.set()
    results = [future.result(10)[0].score.ravel().tolist() for future in (first, *futures)]
    assert results == [[0], [1, 2], [3], [4, 5], [6]]
    # A request is not torn apart: [4, 5] would have made five, so it waits for the next batch.
    assert scorer.batches == [[0], [1, 2, 3], [4, 5, 6]]
    assert batcher.num_waiting == 0
    batcher.close()


def test_a_request_larger_than_a_batch_takes_several(scorer: Scorer):
    batcher = start(scorer)
    scores, more = batcher.submit(images(*range(10)), lambda pixels, own: len(pixels)).result(10)
    assert scores.score.ravel().tolist() == list(range(10))
    assert scores.sigma is None
    assert more == 10
    assert [len(batch) for batch in scorer.batches] == [4, 4, 2]
    batcher.close()


def test_a_burst_is_gathered_and_a_lone_request_is_not_kept(scorer: Scorer):
    batcher = start(scorer)
    with batcher.coming():
        one = batcher.submit(images(1))
        two = batcher.submit(images(2))
    assert one.result(10)[0].score == 1
    assert two.result(10)[0].score == 2
    assert scorer.batches == [[1, 2]]
    begin = time.perf_counter()
    batcher.submit(images(3)).result(10)
    assert time.perf_counter() - begin < 1
    # One that never arrives holds nobody up for long.
    with batcher.coming():
        batcher.submit(images(4)).result(10)
    batcher.close()


def test_a_failure_is_its_batch_alone(scorer: Scorer):
    batcher = start(scorer)
    with pytest.raises(ValueError, match="99"):
        batcher.submit(images(99)).result(10)
    assert batcher.submit(images(5)).result(10)[0].score == 5

    def fail(pixels, own):
        raise RuntimeError("no map")

    first = hold_with_one(batcher, scorer)
    explained, plain = batcher.submit(images(6), fail), batcher.submit(images(7))
    scorer.go.set()
    assert first.result(10)[0].score == 0
    with pytest.raises(RuntimeError, match="no map"):
        explained.result(10)
    assert plain.result(10)[0].score == 7
    batcher.close()


def test_closing_finishes_what_was_accepted_and_takes_nothing_more(scorer: Scorer):
    batcher = start(scorer)
    first = hold_with_one(batcher, scorer)
    waiting = [batcher.submit(images(number)) for number in range(1, 9)]
    closing = threading.Thread(target=batcher.close)
    closing.start()
    while batcher.is_working:
        time.sleep(0.001)
    with pytest.raises(ServiceError) as refused:
        batcher.submit(images(9))
    assert refused.value.status == 503
    scorer.go.set()
    closing.join(10)
    assert not closing.is_alive()
    assert [float(future.result(0)[0].score[0, 0]) for future in (first, *waiting)] == list(range(9))
    batcher.start()  # and it can begin anew
    assert batcher.submit(images(9)).result(10)[0].score == 9
    batcher.close()


def test_a_cancelled_request_is_not_scored(scorer: Scorer):
    batcher = start(scorer)
    hold_with_one(batcher, scorer)
    gone, stays = batcher.submit(images(1)), batcher.submit(images(2))
    assert gone.cancel()
    scorer.go.set()
    assert stays.result(10)[0].score == 2
    assert scorer.batches == [[0], [2]]
    batcher.close()


def test_the_wait_told_grows_with_the_queue(scorer: Scorer):
    batcher = start(scorer, max_waiting=4)
    hold_with_one(batcher, scorer)
    batcher.submit(images(1, 2, 3, 4))
    with pytest.raises(ServiceError) as refused:
        batcher.submit(images(5))
    assert refused.value.status == 429
    batcher._seconds_per_image = 3.0
    assert batcher.seconds_to_wait() == 6
    scorer.go.set()
    batcher.close()


@pytest.mark.parametrize(("side", "batch"), [(32, 32), (64, 32), (96, 16), (224, 4), (448, 1), (1024, 1)])
def test_batches_shrink_as_images_grow(side: int, batch: int):
    class Sized:
        image_size = side

    assert best_batch_size(Sized()) == batch
