"""Batches of cached features: every view in its turn, the right rows, the right substitutes, fast."""

from __future__ import annotations

import time

import numpy as np
import torch

from kmcl.data.sampling import BatchPlan
from kmcl.features.views import CachedBatchMaker, views_of_epoch


def test_every_image_shows_every_view_once_in_turn():
    shown = np.stack([views_of_epoch(500, 4, seed=3, epoch=epoch) for epoch in range(8)])
    for turn in (shown[:4], shown[4:]):
        np.testing.assert_array_equal(np.sort(turn, axis=0), np.tile(np.arange(4)[:, None], 500))
    assert all(np.bincount(epoch, minlength=4).min() > 80 for epoch in shown)  # views are mixed in an epoch
    assert not np.array_equal(shown[:4], shown[4:])
    np.testing.assert_array_equal(shown[5], views_of_epoch.__wrapped__(500, 4, 3, 5))
    assert not np.array_equal(shown[0], views_of_epoch(500, 4, seed=4, epoch=0))


def numbered_views(num_views: int, num_images: int) -> list[np.ndarray]:
    """Rows whose values say view and image."""
    numbers = 100 * np.arange(num_views)[:, None] + np.arange(num_images)
    return list(numbers[:, :, None].astype(np.float16) + np.linspace(0, 0.5, 5).astype(np.float16))


def test_a_batch_has_the_epochs_view_of_each_image():
    views = numbered_views(3, 20)
    targets = np.arange(40, dtype=np.int8).reshape(20, 2) % 2
    maker = CachedBatchMaker(views, targets, seed=1, unreadable={}, drop_unreadable=False)
    indices = np.array([7, 3, 19, 7])
    for epoch in range(3):
        batch = maker[BatchPlan(epoch, 0, indices)].batch
        chosen = views_of_epoch(20, 3, 1, epoch)[indices]
        expected = torch.from_numpy(np.stack([views[v][i] for v, i in zip(chosen, indices, strict=True)]))
        torch.testing.assert_close(batch.images, expected, rtol=0, atol=0)
        np.testing.assert_array_equal(batch.targets, targets[indices])
        np.testing.assert_array_equal(batch.indices, indices)


def test_unreadable_images_are_replaced_in_training_and_left_out_of_evaluation():
    views, targets = numbered_views(1, 6), np.eye(6, dtype=np.int8)
    unreadable = {2: "two", 3: "three", 5: "five"}
    plan = BatchPlan(0, 0, np.arange(6))
    replaced = CachedBatchMaker(views, targets, 0, unreadable, drop_unreadable=False)[plan]
    assert replaced.batch.indices.tolist() == [0, 1, 4, 4, 4, 0]
    assert replaced.batch.images[:, 0].tolist() == [0, 1, 4, 4, 4, 0]
    assert replaced.batch.targets.argmax(1).tolist() == [0, 1, 4, 4, 4, 0]
    assert replaced.bad_images == unreadable
    left = CachedBatchMaker(views, targets, 0, unreadable, drop_unreadable=True)[plan]
    assert left.batch.indices.tolist() == [0, 1, 4]
    assert left.bad_images == unreadable


def test_a_batch_costs_less_than_three_milliseconds():
    views = [np.ones((2000, 4 * 4 * 192 + 768), dtype=np.float16) for _ in range(4)]
    maker = CachedBatchMaker(views, np.zeros((2000, 20), np.int8), 0, {}, drop_unreadable=False)
    generator = np.random.default_rng(0)
    seconds = []
    for _ in range(20):
        indices = generator.permutation(2000)[:64]
        started = time.perf_counter()
        maker[BatchPlan(0, 0, indices)].batch.images.float()
        seconds.append(time.perf_counter() - started)
    assert min(seconds) < 3e-3
