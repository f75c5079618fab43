"""Micro-batching: order, gathering, large requests, failures, several threads, an end that loses nothing."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import numpy as np
import pytest

from kmcl.serving.image_predictor import BatchScores
from kmcl.serving.service.batching import MicroBatcher, _Request
from kmcl.serving.service.errors import ServiceError

from .talking import wait_until


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
        if 99 in batch:
            raise ValueError("99")
        values = batch.reshape(-1, 1).astype(np.float32)
        return BatchScores(values, values / 255, None)


@pytest.fixture
def scorer() -> Scorer:
    return Scorer()


def start(
    scorer: Callable[[np.ndarray], BatchScores],
    batch_size: int = 4,
    max_waiting: int = 100,
    num_threads: int = 1,
) -> MicroBatcher:
    batcher = MicroBatcher(scorer, batch_size=batch_size, max_waiting=max_waiting, num_threads=num_threads)
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
    with batcher.incoming():
        one = batcher.submit(images(1))
        two = batcher.submit(images(2))
    assert one.result(10)[0].score == 1
    assert two.result(10)[0].score == 2
    assert scorer.batches == [[1, 2]]
    begin = time.perf_counter()
    batcher.submit(images(3)).result(10)
    assert time.perf_counter() - begin < 1
    # One that never arrives holds nobody up for long.
    with batcher.incoming():
        batcher.submit(images(4)).result(10)
    batcher.close()


def test_without_gathering_nothing_waits_and_idle_threads_are_woken(scorer: Scorer):
    batcher = MicroBatcher(scorer, batch_size=4, max_waiting=100, num_threads=2, gathers=False)
    batcher.start()
    scorer.go.clear()
    with batcher.incoming():
        first, second = batcher.submit(images(1)), batcher.submit(images(2))
        wait_until(lambda: len(scorer.batches) == 2)  # each on a thread of its own, while one is to come
    third = batcher.submit(images(3, 4, 5))
    scorer.go.set()
    assert [future.result(10)[0].score.ravel().tolist() for future in (first, second, third)] == [
        [1],
        [2],
        [3, 4, 5],
    ]
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


def values(future: Future) -> list[int]:
    return future.result(10)[0].score.ravel().tolist()


def test_a_request_without_images_is_refused(scorer: Scorer):
    with pytest.raises(ValueError, match="at least one image"):
        start(scorer).submit(images())


def test_two_threads_score_two_batches_at_once(scorer: Scorer):
    batcher = start(scorer, num_threads=2)
    scorer.go.clear()
    futures = [batcher.submit(images(number)) for number in (1, 2)]
    wait_until(lambda: len(scorer.batches) == 2)  # neither is done
    waiting = batcher.submit(images(3, 4, 5, 6))
    assert batcher.num_waiting == 4
    scorer.go.set()
    assert [values(future) for future in (*futures, waiting)] == [[1], [2], [3, 4, 5, 6]]
    batcher.close()


def test_a_large_request_is_spread_over_threads_and_comes_back_in_order():
    last_is_done = threading.Event()
    threads = set()

    def score(batch: np.ndarray) -> BatchScores:
        threads.add(threading.current_thread())
        if 0 in batch:
            assert last_is_done.wait(20)  # the first piece is the last to be done
        if 9 in batch:
            last_is_done.set()
        numbers = batch.reshape(-1, 1).astype(np.float32)
        return BatchScores(numbers, numbers, numbers, numbers.ravel(), feature_summary=numbers)

    batcher = start(score, num_threads=2)
    scores, more = batcher.submit(images(*range(10)), lambda pixels, own: own.score.ravel()).result(20)
    for array in (*scores, more):
        assert array.ravel().tolist() == list(range(10))
    assert len(threads) == 2
    batcher.close()


def test_pieces_that_fail_fail_their_request_once_and_nothing_else():
    together = threading.Barrier(2)

    def score(batch: np.ndarray) -> BatchScores:
        if 99 in batch:
            together.wait(20)  # both pieces fail at the same moment
            raise ValueError("99")
        return BatchScores(*[batch.reshape(-1, 1).astype(np.float32)] * 3)

    batcher = start(score, batch_size=1, num_threads=2)
    for number in range(50):
        told: list[Future] = []
        failing = batcher.submit(images(99, 99))
        failing.add_done_callback(told.append)
        other = batcher.submit(images(number))
        with pytest.raises(ValueError, match="99"):
            failing.result(10)
        assert values(other) == [number]
        assert told == [failing]
    assert all(thread.is_alive() for thread in batcher._threads)
    batcher.close()


def test_two_failures_of_a_request_are_one(monkeypatch):
    """Between the look whether it is done and the telling of an error another thread may tell its own."""
    monkeypatch.setattr(Future, "done", lambda self: False)
    request = _Request(images(1, 2), None, [None, None])
    for text in ("first", "second"):
        request.fail(ValueError(text))
    with pytest.raises(ValueError, match="first"):
        request.future.result(0)


def test_what_is_left_of_a_failed_request_is_not_scored(scorer: Scorer):
    batcher = start(scorer, batch_size=1)
    with pytest.raises(ValueError, match="99"):
        batcher.submit(images(99, 1, 2)).result(10)
    assert values(batcher.submit(images(3))) == [3]
    assert scorer.batches == [[99], [3]]
    assert batcher.num_waiting == 0
    batcher.close()


def test_a_request_can_be_taken_back_until_its_first_piece_is_begun(scorer: Scorer):
    batcher = start(scorer, batch_size=2, num_threads=2)
    hold_with_one(batcher, scorer)
    begun = batcher.submit(images(1, 2, 3, 4))
    wait_until(lambda: scorer.batches == [[0], [1, 2]])
    waits = batcher.submit(images(5, 6, 7, 8))
    assert not begun.cancel()
    assert waits.cancel()
    scorer.go.set()
    assert values(begun) == [1, 2, 3, 4]
    batcher.close()
    assert sorted(scorer.batches) == [[0], [1, 2], [3, 4]]
    assert batcher.num_waiting == 0


def test_a_thread_that_gathered_for_nothing_goes_on(scorer: Scorer):
    batcher = start(scorer, num_threads=3)
    with batcher.incoming():  # all three wait for what comes; one takes it
        for number in range(5):
            assert values(batcher.submit(images(number))) == [number]
    assert all(thread.is_alive() for thread in batcher._threads)
    batcher.close()


def test_closing_several_threads_loses_nothing_that_was_accepted():
    def score(batch: np.ndarray) -> BatchScores:
        time.sleep(0.001)
        return BatchScores(*[batch.reshape(-1, 1).astype(np.float32)] * 3)

    batcher = start(score, max_waiting=2000, num_threads=3)
    accepted: list[tuple[list[int], Future]] = []

    def submit(first: int) -> None:
        with suppress(ServiceError):  # until it is closed, or too many wait
            for number in itertools.count():
                wanted = [(first + k) % 90 for k in range(1 + number % 9)]
                accepted.append((wanted, batcher.submit(images(*wanted))))

    submitters = [threading.Thread(target=submit, args=(first,)) for first in range(8)]
    for thread in submitters:
        thread.start()
    wait_until(lambda: len(accepted) > 50)
    batcher.close()
    for thread in submitters:
        thread.join(20)
    assert all(future.done() for _, future in accepted)
    assert [values(future) for _, future in accepted] == [wanted for wanted, _ in accepted]
    assert batcher.num_waiting == 0
