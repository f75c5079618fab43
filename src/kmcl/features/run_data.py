"""The loaders of a run's splits, of images or of cached features."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import Tensor

from kmcl.data import Dataset
from kmcl.data.loading import BatchLoader, LoaderSettings, make_eval_loader, make_train_loader
from kmcl.data.selection import select
from kmcl.errors import InputError
from kmcl.features.runtime import FrozenRuntimes
from kmcl.features.store import FeatureCache
from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier
from kmcl.runs.settings import TrainingSettings

SAMPLE_IMAGES = 512
"""Training images on which mAP is measured after each epoch."""

MEMORY_CACHE_LIMIT = 4 * 2**30
"""Bytes of decoded images that cache="auto" keeps in memory."""


class RunData:
    """Gives the batches of a run.

    from_rows: whether they hold rows of the encoder's frozen stages (cached features) instead of images
    """

    def __init__(
        self,
        dataset: Dataset,
        settings: TrainingSettings,
        classifier: Classifier,
        console: Console,
        device: str,
        runtimes: FrozenRuntimes | None = None,
    ) -> None:
        self.dataset = dataset
        self._settings = settings
        self._image_size = classifier.encoder.input_size
        self._console = console
        self._cache: FeatureCache | None = None
        if views := settings.encoder.cached_views:
            self._cache = FeatureCache(
                classifier,
                self._loading(),
                views,
                console,
                device,
                settings.encoder.feature_runtime,
                runtimes,
            )

    @property
    def from_rows(self) -> bool:
        return self._cache is not None

    @property
    def is_quick(self) -> bool:
        """Whether a pass over the data takes little time: no image is decoded."""
        return self.from_rows or self._image_size == 0

    @property
    def cache(self) -> FeatureCache:
        """The cached features of a run that trains on them."""
        if self._cache is None:
            raise RuntimeError("this run has no cached features")
        return self._cache

    def use_views(self, num_views: int) -> None:
        """Train on so many views of each image."""
        self.cache.num_views = num_views

    def score(self, classifier: Classifier, images: Tensor) -> HeadOutput:
        """The classifier's output for the images of a batch, whether these are pixels or cached features."""
        return classifier.score_rows(images) if self.from_rows else classifier(images)

    @property
    def evaluated_splits(self) -> list[str]:
        """Besides train: those that the run predicts."""
        wanted = ("val", "test") if self._settings.evaluation.measure_test else ("val",)
        return [name for name in wanted if name in self.dataset.splits]

    def train_loader(self, rank: int = 0, world_size: int = 1) -> BatchLoader:
        split = self.dataset.splits["train"]
        loading = self._loading(world_size)
        if self._cache is not None:
            loader = self._cache.train_loader(split, loading.batch_size, rank=rank, world_size=world_size)
        else:
            loader = make_train_loader(split, loading, rank=rank, world_size=world_size)
        if len(loader) == 0:
            raise InputError(
                f"the train split has {len(split)} images, too few for a batch of "
                f"{self._settings.optimisation.batch_size}; use a smaller --batch-size"
            )
        return loader

    def train_sample_loader(self) -> BatchLoader:
        """At most `SAMPLE_IMAGES` training images, always the same, in batches of any size.

        Not augmented; of cached features, their first view, since no other is computed for training.
        """
        split = self.dataset.splits["train"]
        chosen = np.random.default_rng(0).permutation(len(split))[:SAMPLE_IMAGES]
        loading = replace(self._loading(), num_workers=0)
        if self._cache is not None:
            return self._cache.sample_loader(split, np.sort(chosen), loading.batch_size)
        return make_eval_loader(select(split, np.sort(chosen)), loading)

    def eval_loader(self, name: str, rank: int = 0, world_size: int = 1) -> BatchLoader:
        """The images of a split in its order, not augmented."""
        split = self.dataset.splits[name]
        loading = self._loading(world_size)
        if self._cache is not None:
            return self._cache.eval_loader(split, name, loading.batch_size, rank=rank, world_size=world_size)
        return make_eval_loader(split, loading, rank=rank, world_size=world_size)

    def cache_evaluated_splits(self, rank: int, world_size: int) -> None:
        """Compute the features that the end of the run needs, by all processes, before training needs the
        memory; the first process is alone then.
        """
        if self._cache is not None:
            for name in self.evaluated_splits:
                self.eval_loader(name, rank, world_size)
            self._cache.close()

    def report_bad_images(self, name: str, loader: BatchLoader) -> None:
        """Print which images of a split could not be read, once all of it has been."""
        if not loader.bad_images:
            return
        num_images = len(self.dataset.splits[name])
        self._console.print(f"{len(loader.bad_images)} of {num_images} images could not be read in {name}:")
        for message in list(loader.bad_images.values())[:10]:
            self._console.print(f"  {message}", soft_wrap=True)

    def _loading(self, world_size: int = 1) -> LoaderSettings:
        settings, batch_size = self._settings.data, self._settings.optimisation.batch_size
        if batch_size % world_size:
            raise InputError(f"batch_size {batch_size} must be a multiple of the {world_size} processes")
        return LoaderSettings(
            batch_size=batch_size // world_size,
            image_size=self._image_size,
            num_workers=settings.workers,
            augmentation=settings.augmentation,
            sampling=settings.sampling,
            cache=self._image_cache(),
            cache_dir=settings.cache_dir,
            seed=self._settings.optimisation.seed,
            skip_bad_images=settings.skip_bad_images,
            pin_memory=torch.cuda.is_available(),
        )

    def _image_cache(self) -> Any:
        if self._settings.data.cache != "auto":
            return self._settings.data.cache
        if self._settings.encoder.cached_views:
            return "none"  # a view decodes each image once
        num_images = sum(len(split) for split in self.dataset.splits.values())
        num_bytes = 3 * num_images * self._image_size**2
        return "memory" if num_bytes <= MEMORY_CACHE_LIMIT else "none"
