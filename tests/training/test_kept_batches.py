"""Batches of kept maps: every view in its turn, the right rows, the right stand-ins, fast."""

from __future__ import annotations

import time

import numpy as np
import torch

from kmcl.data.sampling import BatchPlan
from kmcl.training.kept_batches import KeptBatchMaker, views_of_epoch


def test_every_image_shows_every_view_once_in_turn():
    shown = np.stack([views_of_epoch(500, 4, seed=3, epoch=epoch) for epoch in range(8)])
    for turn in (shown[:4], shown[4:]):
        np.testing.assert_array_equal(np.sort(turn, axis=0), np.tile(np.arange(4)[:, None], 500))
    assert all(np.bincount(epoch, minlength=4).min() > 80 for epoch in shown)  # views are mixed in an epoch
    assert not np.array_equal(shown[:4], shown[4:])
    np.testing.assert_array_equal(shown[5], views_of_epoch.__wrapped__(500, 4, 3, 5))
    assert not np.array_equal(shown[0], views_of_epoch(500, 4, seed=4, epoch=0))


def numbered_views(num_views: int, num_images: int) -> list[np.ndarray]:
    """Maps whose value says view and image; channels last."""
    numbers = 100 * np.arange(num_views)[:, None] + np.arange(num_images)
    maps = np.broadcast_to(numbers[:, :, None, None, None], (num_views, num_images, 2, 3, 5))
    return list(maps.astype(np.float16) + np.linspace(0, 0.5, 5).astype(np.float16))


def test_a_batch_has_the_epochs_view_of_each_image():
    views = numbered_views(3, 20)
    targets = np.arange(40, dtype=np.int8).reshape(20, 2) % 2
    maker = KeptBatchMaker(views, targets, seed=1, unreadable={}, drop_unreadable=False)
    indices = np.array([7, 3, 19, 7])
    for epoch in range(3):
        batch = maker[BatchPlan(epoch, 0, indices)].batch
        assert batch.images.shape == (4, 5, 2, 3)
        assert batch.images.is_contiguous(memory_format=torch.channels_last)
        chosen = views_of_epoch(20, 3, 1, epoch)[indices]
        expected = torch.from_numpy(np.stack([views[v][i] for v, i in zip(chosen, indices, strict=True)]))
        torch.testing.assert_close(batch.images, expected.permute(0, 3, 1, 2), rtol=0, atol=0)
        np.testing.assert_array_equal(batch.targets, targets[indices])
        np.testing.assert_array_equal(batch.indices, indices)


def test_unreadable_images_are_replaced_in_training_and_left_out_of_evaluation():
    views, targets = numbered_views(1, 6), np.eye(6, dtype=np.int8)
    unreadable = {2: "two", 3: "three", 5: "five"}
    plan = BatchPlan(0, 0, np.arange(6))
    replaced = KeptBatchMaker(views, targets, 0, unreadable, drop_unreadable=False)[plan]
    assert replaced.batch.indices.tolist() == [0, 1, 4, 4, 4, 0]
    assert replaced.batch.images[:, 0, 0, 0].tolist() == [0, 1, 4, 4, 4, 0]
    assert replaced.batch.targets.argmax(1).tolist() == [0, 1, 4, 4, 4, 0]
    assert replaced.bad_images == unreadable
    left = KeptBatchMaker(views, targets, 0, unreadable, drop_unreadable=True)[plan]
    assert left.batch.indices.tolist() == [0, 1, 4]
    assert left.bad_images == unreadable


def test_tokens_keep_their_layout():
    views = [np.arange(60, dtype=np.float16).reshape(3, 4, 5)]
    maker = KeptBatchMaker(views, np.zeros((3, 1), np.int8), 0, {}, drop_unreadable=True)
    images = maker[BatchPlan(0, 0, np.array([2, 0]))].batch.images
    np.testing.assert_array_equal(images, views[0][[2, 0]])


def test_a_batch_costs_less_than_three_milliseconds():
    views = [np.ones((2000, 4, 4, 192), dtype=np.float16) for _ in range(4)]
    maker = KeptBatchMaker(views, np.zeros((2000, 20), np.int8), 0, {}, drop_unreadable=False)
    generator = np.random.default_rng(0)
    seconds = []
    for _ in range(20):
        indices = generator.permutation(2000)[:64]
        started = time.perf_counter()
        maker[BatchPlan(0, 0, indices)].batch.images.float()
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 3e-3
