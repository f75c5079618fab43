"""Augmented views of the images of a split, which do not depend on the seed of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import Sampler

from kmcl.data.augmentation import AUGMENTATIONS, AugmentationName
from kmcl.data.batches import Batch, BatchMaker, Delivery
from kmcl.data.cache import content_key, open_cached
from kmcl.data.dataset import Split
from kmcl.data.decoding import DecodedImages, ImageSource
from kmcl.data.loading import LoaderSettings
from kmcl.data.sampling import BatchPlan
from kmcl.errors import InputError
from kmcl.progress import WorkProgress
from kmcl.storage.file_rows import FileRows

VIEW_SEED = 0
"""Seed of the augmentation of views. Not the seed of the run: runs with different seeds share their files."""
NUM_SAMPLED_IMAGES = 4
CHUNK_IMAGES = 64
"""Images per batch of the frozen stages, and per chunk of a file."""


@dataclass
class ViewImages:
    """The views of a split as pixels: view v of image i depends on v, i, the image and the augmentation."""

    split: Split
    augmentation: AugmentationName
    loading: LoaderSettings
    _source: ImageSource | None = None

    @property
    def _working_size(self) -> int:
        return AUGMENTATIONS[self.augmentation].working_size(self.loading.image_size)

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Everything the pixels of all views depend on."""
        return {
            "images": content_key(self.split.images, self._working_size),
            "num_images": len(self.split),
            "image_size": self.loading.image_size,
            "augmentation": self.augmentation,
            "view_seed": VIEW_SEED,
        }

    def sample(self, view: int) -> str:
        """A digest of the first images of a view; it changes when the augmentation code does."""
        maker = self._maker_of(DecodedImages(self.split.images, self._working_size))
        plan = BatchPlan(view, 0, np.arange(min(NUM_SAMPLED_IMAGES, len(self.split))))
        delivery = maker[plan]
        if delivery.batch is None:
            raise InputError(delivery.failure or "the images cannot be read")
        return hashlib.sha256(delivery.batch.images.contiguous().numpy().tobytes()).hexdigest()[:32]

    def maker(self, progress: WorkProgress) -> BatchMaker:
        """Builds batches of any view; with an image cache, images are decoded once for all views."""
        if self._source is None:
            self._source = open_cached(
                self.split.images,
                self._working_size,
                self.loading.cache,
                cache_dir=self.loading.cache_dir,
                skip_bad_images=self.loading.skip_bad_images,
                on_progress=progress.decoded,
            )
        return self._maker_of(self._source)

    def _maker_of(self, source: ImageSource) -> BatchMaker:
        return BatchMaker(
            source=source,
            targets=np.asarray(self.split.targets, dtype=np.int8),
            augmentation=AUGMENTATIONS[self.augmentation],
            image_size=self.loading.image_size,
            seed=VIEW_SEED,
            # Every image needs a row in the file; that of an unreadable image is never used.
            bad_image_rule="replace" if self.loading.skip_bad_images else "refuse",
        )


class ChunkPlan(Sampler[BatchPlan]):
    """One batch per chunk of a file. Random numbers are drawn with the view's number as epoch."""

    def __init__(self, view: int, starts: Sequence[int], num_images: int) -> None:
        self._view, self._starts, self._num_images = view, starts, num_images

    def set_epoch(self, epoch: int) -> None:
        """Required by the interface of plans; a view is the same in every epoch."""

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[BatchPlan]:
        for start in self._starts:
            stop = min(start + CHUNK_IMAGES, self._num_images)
            yield BatchPlan(self._view, start, np.arange(start, stop, dtype=np.int64))


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
