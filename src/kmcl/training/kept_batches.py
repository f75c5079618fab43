"""Batches of kept maps: which view of each image an epoch trains on, and reading them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset as TorchDataset

from kmcl.data.batches import Batch, Delivery
from kmcl.data.sampling import BatchPlan
from kmcl.training.kept_file import Maps

_VIEW_STREAM = 1


@lru_cache(maxsize=2)
def views_of_epoch(num_images: int, num_views: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The view of each image in one epoch.

    Every `num_views` epochs each image shows each of its views once, in an order of its own. It depends on
    the arguments alone: the same for every method, every process and after a resume.

    Returns: num_images numbers in [0, num_views).
    """
    turn, place = divmod(epoch, num_views)
    generator = np.random.default_rng([seed, turn, _VIEW_STREAM])
    order = generator.random((num_images, num_views)).argsort(axis=1)
    return np.ascontiguousarray(order[:, place])


class KeptBatchMaker(TorchDataset[Delivery]):
    """Maps the plan of a batch to the batch: `images` are rows of the encoder's frozen stages, float16.

    views: one array per view, N x R.
    unreadable: index -> why the image has no maps. In training the next readable image stands in for it, as
        in batches of images; in evaluation (`drop_unreadable`) it is left out.
    """

    def __init__(
        self,
        views: Sequence[Maps],
        targets: npt.NDArray[np.int8],
        seed: int,
        unreadable: dict[int, str],
        *,
        drop_unreadable: bool,
    ) -> None:
        self._views = [np.asarray(view) for view in views]
        self._targets = np.asarray(targets, dtype=np.int8)
        self._seed = seed
        self._unreadable = unreadable
        self._drop_unreadable = drop_unreadable
        self._stand_in = _next_readable(len(targets), unreadable)

    def __getitem__(self, plan: BatchPlan) -> Delivery:
        indices = plan.indices
        bad_images = {int(i): self._unreadable[int(i)] for i in indices if int(i) in self._unreadable}
        if bad_images and self._drop_unreadable:
            indices = indices[self._stand_in[indices] == indices]
        else:
            indices = self._stand_in[indices]
        rows = torch.from_numpy(self._read(indices, plan.epoch))
        batch = Batch(rows, torch.from_numpy(self._targets[indices]), torch.from_numpy(indices))
        return Delivery(batch, bad_images)

    def _read(self, indices: npt.NDArray[np.int64], epoch: int) -> Maps:
        if len(self._views) == 1:
            return np.take(self._views[0], indices, axis=0)
        chosen = views_of_epoch(len(self._targets), len(self._views), self._seed, epoch)[indices]
        rows = np.empty((len(indices), *self._views[0].shape[1:]), dtype=self._views[0].dtype)
        for view, maps in enumerate(self._views):
            slots = np.flatnonzero(chosen == view)
            rows[slots] = maps[indices[slots]]
        return rows


def _next_readable(num_images: int, unreadable: dict[int, str]) -> npt.NDArray[np.int64]:
    """For each image itself or, where it is unreadable, the next that is not; the last is followed by the
    first."""
    stand_in = np.arange(num_images)
    readable = np.setdiff1d(stand_in, np.fromiter(unreadable, dtype=np.int64, count=len(unreadable)))
    for index in unreadable:
        stand_in[index] = readable[np.searchsorted(readable, index) % len(readable)]
    return stand_in
