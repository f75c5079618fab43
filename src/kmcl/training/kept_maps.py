"""Maps of frozen stages, computed once per view of each image and kept in files that all runs share.

What a file holds depends on the images, the encoder's frozen stages and their weights, the image size, the
augmentation and the number of the view; its name is a digest of these. It does not depend on the method, the
seed or the optimisation, so the runs of a comparison compute it once. Views are files of their own: a run
with four views finds the two that a run with two views left.

Every training view is augmented, the first too. Val and test have one view, not augmented.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from rich.console import Console

from kmcl.data.augmentation import AugmentationName
from kmcl.data.dataset import Split
from kmcl.data.decoding import DecodedImages
from kmcl.data.loading import BatchLoader, LoaderSettings, default_num_workers
from kmcl.data.sampling import EvaluationPlan, TrainingPlan
from kmcl.data.source_cache import cache_folder
from kmcl.errors import InputError
from kmcl.models.classifier import Classifier
from kmcl.models.frozen_stages import digest_of
from kmcl.training.image_progress import ImageProgress
from kmcl.training.kept_batches import KeptBatchMaker
from kmcl.training.kept_file import CHUNK_ROWS, Chunk, KeptFile
from kmcl.training.view_images import ChunkPlan, ViewImages

FORMAT = "kmcl-maps-2"
TOLD_FROM = 2 * 10**9
"""Bytes above which the space that will be used is told before it is."""


class KeptMaps:
    """The maps that a run trains on and is evaluated on, computed where they are not there yet.

    loading: size, augmentation, batches and seed of the run; its `cache_dir` is where the files go.
    """

    def __init__(
        self,
        classifier: Classifier,
        loading: LoaderSettings,
        num_views: int,
        console: Console,
        device: str = "cpu",
    ) -> None:
        self.num_views = num_views
        self._classifier = classifier
        self._loading = loading
        self._console = console
        self._device = device
        self._folder = loading.cache_dir or cache_folder() / "maps"

    def train_loader(
        self, split: Split, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> BatchLoader:
        loading = self._loading
        plan = TrainingPlan(
            split.targets,
            batch_size=batch_size,
            sampling=loading.sampling,
            seed=loading.seed,
            rank=rank,
            world_size=world_size,
            balance_threshold=loading.balance_threshold,
        )
        maker = self._maker(split, "train", loading.augmentation, self.num_views, drop_unreadable=False)
        return BatchLoader(maker, plan, num_workers=0, pin_memory=loading.pin_memory)

    def eval_loader(
        self, split: Split, name: str, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> BatchLoader:
        plan = EvaluationPlan(len(split), batch_size=batch_size, rank=rank, world_size=world_size)
        maker = self._maker(split, name, "none", 1, drop_unreadable=True)
        return BatchLoader(maker, plan, num_workers=0, pin_memory=self._loading.pin_memory)

    def _maker(
        self,
        split: Split,
        name: str,
        augmentation: AugmentationName,
        num_views: int,
        *,
        drop_unreadable: bool,
    ) -> KeptBatchMaker:
        images = ViewImages(split, augmentation, self._loading)
        files = [self._file(images, view, f"{name}, view {view + 1}") for view in range(num_views)]
        self._announce(name, sum(file.num_missing_bytes for file in files))
        unreadable: dict[int, str] = {}
        for view, file in enumerate(files):
            what = f"maps of {name}" + (f", view {view + 1} of {num_views}" if num_views > 1 else "")
            with ImageProgress(self._console, what, len(split)) as progress:
                try:
                    unreadable |= file.complete(
                        partial(self._compute, images, view, progress),
                        on_wait=progress.wait_for_another,
                    )
                except OSError as error:
                    raise InputError(
                        f"{file.path}: the maps of {name} cannot be kept: {error.strerror or error}; "
                        "what was computed stays there; choose another --cache-dir or free some space"
                    ) from error
        if unreadable and not self._loading.skip_bad_images:
            raise InputError(next(iter(unreadable.values())))
        return KeptBatchMaker(
            [file.rows() for file in files],
            split.targets,
            self._loading.seed,
            unreadable,
            drop_unreadable=drop_unreadable,
        )

    def _announce(self, name: str, num_bytes: int) -> None:
        """Tell how much disk is needed where it is much; refuse what cannot fit."""
        folder = self._folder
        while not folder.exists():
            folder = folder.parent
        free = shutil.disk_usage(folder).free
        if num_bytes > free:
            raise InputError(
                f"the kept maps of {name} need {num_bytes / 1e9:.1f} GB in {self._folder}, where "
                f"{free / 1e9:.1f} GB are free; use fewer --kept-views, a smaller --image-size, more "
                "--frozen-stages or another --cache-dir"
            )
        if num_bytes > TOLD_FROM:
            self._console.print(
                f"the kept maps of {name} will take {num_bytes / 1e9:.1f} GB in {self._folder} "
                f"({free / 1e9:.1f} GB free)",
                soft_wrap=True,
                highlight=False,
            )

    def _file(self, images: ViewImages, view: int, what: str) -> KeptFile:
        identity = {
            "format": FORMAT,
            **images.identity,
            "view": view,
            "sample": images.sample(view),
            **self._encoder_identity,
        }
        name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        about = {"what": what, **identity}
        return KeptFile(self._folder / f"{name}.maps", len(images.split), self._row_shape, about)

    @cached_property
    def _encoder_identity(self) -> dict[str, Any]:
        encoder = self._classifier.encoder
        return {
            "encoder": encoder.name,
            "in_channels": encoder.in_channels,
            "mean": list(encoder.mean),
            "std": list(encoder.std),
            "frozen_stages": encoder.num_frozen_stages,
            "weights": digest_of(encoder.frozen_tensors()),
            "timm": version("timm"),
        }

    @cached_property
    def _row_shape(self) -> tuple[int, ...]:
        size = self._loading.image_size
        return tuple(self._maps(torch.zeros(1, 3, size, size, dtype=torch.uint8)).shape[1:])

    @torch.inference_mode()
    def _maps(self, images: torch.Tensor) -> np.ndarray[Any, np.dtype[np.float16]]:
        maps = self._classifier.to(self._device).frozen_rows(images.to(self._device))
        halves: np.ndarray[Any, np.dtype[np.float16]] = maps.half().cpu().contiguous().numpy()
        if not np.isfinite(halves).all():
            encoder = self._classifier.encoder
            raise InputError(
                f"the maps of encoder '{encoder.name}' after {encoder.num_frozen_stages} stages reach "
                f"{maps.abs().max().item():.3g}, more than float16 can hold; freeze another number of stages "
                "or use --kept-views 0"
            )
        return halves

    def _compute(
        self, images: ViewImages, view: int, progress: ImageProgress, starts: Sequence[int]
    ) -> Iterator[Chunk]:
        plan = ChunkPlan(view, starts, len(images.split))
        maker = images.maker(progress)
        num_workers = self._loading.num_workers
        if num_workers is None:
            decodes = isinstance(maker.source, DecodedImages)
            num_workers = default_num_workers(images.augmentation, decodes=decodes)
        loader = BatchLoader(maker, plan, num_workers=num_workers, pin_memory=False)
        progress.start(len(starts) * CHUNK_ROWS)
        try:
            for start, batch in zip(starts, loader, strict=True):
                rows = range(start, start + CHUNK_ROWS)
                bad = {row: why for row, why in loader.bad_images.items() if row in rows}
                yield Chunk(self._maps(batch.images), bad)
                progress.advance(len(batch.indices))
        finally:
            loader.close()
