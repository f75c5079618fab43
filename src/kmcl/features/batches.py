"""Batches of cached features: which view of each image an epoch trains on, and how they are read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset as TorchDataset

from kmcl.data.batches import Batch, Delivery
from kmcl.data.sampling import BatchPlan
from kmcl.storage.file_rows import FileRows

Features = npt.NDArray[np.float16]
Indices = npt.NDArray[np.int64]

_VIEW_STREAM = 1


@lru_cache(maxsize=2)
def views_of_epoch(num_images: int, num_views: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The view of each image in one epoch: num_images integers in [0, num_views).

    In every `num_views` epochs each view of an image is used once, in an order drawn for each image. The
    result depends on the arguments alone: it is the same for every method, in every process and after a
    resume.
    """
    turn, place = divmod(epoch, num_views)
    generator = np.random.default_rng([seed, turn, _VIEW_STREAM])
    order = generator.random((num_images, num_views)).argsort(axis=1)
    return np.ascontiguousarray(order[:, place])


class CachedBatchMaker(TorchDataset[Delivery]):
    """Maps the plan of a batch to a batch whose `images` are cached features, B x R in float16.

    views:           one array N x R per view; usually in a chunk file.
    targets:         N x L.
    seed:            of the order of the views.
    unreadable:      index -> why the image has no features.
    drop_unreadable: leave such images out (evaluation) instead of using the next readable one (training),
                     as batches of images do.
    """

    def __init__(
        self,
        views: Sequence[Features | FileRows],
        targets: npt.NDArray[np.int8],
        seed: int,
        unreadable: dict[int, str],
        *,
        drop_unreadable: bool,
    ) -> None:
        self._views = views
        self._targets = np.asarray(targets, dtype=np.int8)
        self._seed = seed
        self._unreadable = unreadable
        self._drop_unreadable = drop_unreadable
        self._substitutes = _next_readable(len(targets), unreadable)

    def __getitem__(self, plan: BatchPlan) -> Delivery:
        indices = plan.indices
        bad_images = {int(i): self._unreadable[int(i)] for i in indices if int(i) in self._unreadable}
        if bad_images and self._drop_unreadable:
            indices = indices[self._substitutes[indices] == indices]
        else:
            indices = self._substitutes[indices]
        rows = self._read(indices, plan.epoch)
        batch = Batch(
            torch.from_numpy(rows), torch.from_numpy(self._targets[indices]), torch.from_numpy(indices)
        )
        return Delivery(batch, bad_images)

    def _read(self, indices: npt.NDArray[np.int64], epoch: int) -> Features:
        if len(self._views) == 1:
            return self._views[0].take(indices, axis=0)
        chosen = views_of_epoch(len(self._targets), len(self._views), self._seed, epoch)[indices]
        rows = np.empty((len(indices), *self._views[0].shape[1:]), dtype=self._views[0].dtype)
        for view, features in enumerate(self._views):
            slots = np.flatnonzero(chosen == view)
            rows[slots] = features.take(indices[slots], axis=0)
        return rows


def _next_readable(num_images: int, unreadable: dict[int, str]) -> npt.NDArray[np.int64]:
    """The index of each image or, if it is unreadable, of the next readable one; after the last comes the
    first."""
    substitutes = np.arange(num_images)
    readable = np.setdiff1d(substitutes, np.fromiter(unreadable, dtype=np.int64, count=len(unreadable)))
    for index in unreadable:
        substitutes[index] = readable[np.searchsorted(readable, index) % len(readable)]
    return substitutes
