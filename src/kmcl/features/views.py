"""Augmented views of the images of a split, which do not depend on the seed of the run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch.utils.data import Sampler

from kmcl.data.augmentation import AUGMENTATIONS, AugmentationName
from kmcl.data.batches import BatchMaker
from kmcl.data.cache import open_cached
from kmcl.data.cache_file import content_key
from kmcl.data.dataset import Split
from kmcl.data.decoding import DecodedImages, ImageSource
from kmcl.data.loading import LoaderSettings
from kmcl.data.sampling import BatchPlan
from kmcl.errors import InputError
from kmcl.progress import WorkProgress

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
