"""From a split to batches: what training and evaluation iterate over.

A batch is planned in the main process (`sampling`) and built, here or in a worker process, from its plan
alone. So one seed gives bit-identical batches with any number of workers, with or without a cache, after a
resume, and distributed over any number of processes.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, get_args

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler
from torch.utils.data import Dataset as TorchDataset

from kmcl.cores import available_cores
from kmcl.data.augmentation import AUGMENTATIONS, AugmentationName
from kmcl.data.batches import BadImageRule, Batch, BatchMaker, Delivery
from kmcl.data.cache import CacheKind, open_cached
from kmcl.data.dataset import Split
from kmcl.data.decoding import DecodedImages, Progress
from kmcl.data.sampling import BatchPlan, EvaluationPlan, Sampling, TrainingPlan
from kmcl.data.vector_batches import VectorBatchMaker
from kmcl.data.vectors import feature_dim_of
from kmcl.errors import InputError, TrainingError

__all__ = [
    "Batch",
    "BatchLoader",
    "LoaderSettings",
    "LostWorkerError",
    "explaining_lost_workers",
    "make_eval_loader",
    "make_train_loader",
]

MAX_WORKERS = 8


@dataclass(frozen=True)
class LoaderSettings:
    """How batches are built. `batch_size` is per process; None workers means a number chosen automatically.

    image_size: side of the square images; 0 for feature vectors, which are neither resized nor augmented.
    balance_threshold: the label frequency below which sampling="balanced" repeats images (None: the median).
    cache_dir: where cache="disk" stores its files (None: the user's cache folder).
    """

    batch_size: int = 64
    image_size: int = 224
    num_workers: int | None = None
    augmentation: AugmentationName = "photo"
    sampling: Sampling = "shuffle"
    cache: CacheKind = "none"
    cache_dir: Path | None = None
    seed: int = 0
    skip_bad_images: bool = False
    balance_threshold: float | None = None
    pin_memory: bool = False

    def __post_init__(self) -> None:
        for name, least, value in (
            ("batch_size", 1, self.batch_size),
            ("image_size", 8, self.image_size or None),
            ("num_workers", 0, self.num_workers),
            ("seed", 0, self.seed),
        ):
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, got {value}")
        for name, choices, chosen in (
            ("augmentation", get_args(AugmentationName), self.augmentation),
            ("sampling", get_args(Sampling), self.sampling),
            ("cache", get_args(CacheKind), self.cache),
        ):
            if chosen not in choices:
                raise InputError(f"{name} must be one of {', '.join(choices)}; got {chosen!r}")


class LostWorkerError(TrainingError):
    """A worker process died; the message says what to try."""


@contextmanager
def explaining_lost_workers() -> Iterator[None]:
    """Raise LostWorkerError when a worker process dies, whatever runs in the block at that moment.

    torch raises RuntimeError in the main thread from its handler of SIGCHLD, not only where a batch is read.
    Also a decorator.
    """
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, LostWorkerError) or "DataLoader worker" not in str(error):
            raise
        reason = str(error).partition("\n")[0]
        raise LostWorkerError(
            f"a worker process that loads images was lost ({reason}). Most often the system ended it for "
            "lack of memory: use fewer workers (--workers, num_workers) or none (0)"
        ) from error


class EpochPlan(Protocol):
    """The plans of the batches of an epoch, from which a `BatchLoader` builds batches."""

    def set_epoch(self, epoch: int) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[BatchPlan]: ...


class _RemainingBatches(Sampler[BatchPlan]):
    """The batches of an epoch, the next time from `first` on; see `BatchLoader.skip`."""

    def __init__(self, plan: EpochPlan) -> None:
        self._plan = plan
        self.first = 0

    def __len__(self) -> int:
        return len(self._plan)

    def __iter__(self) -> Iterator[BatchPlan]:
        first, self.first = self.first, 0
        yield from islice(iter(self._plan), first, None)


class BatchLoader:
    """Iterates over the batches of an epoch; `set_epoch` chooses the epoch of the next iteration.

    `sampler` has the same `set_epoch`, where training frameworks look for it. `bad_images` maps the index of
    each image left out so far to the reason, whichever process read it.
    """

    batch_sampler = None  # read by training frameworks in addition to `sampler`

    def __init__(
        self, maker: TorchDataset[Delivery], plan: EpochPlan, *, num_workers: int, pin_memory: bool
    ) -> None:
        self.sampler = plan
        self.num_workers = num_workers
        self.bad_images: dict[int, str] = {}
        self._remaining = _RemainingBatches(plan)
        self._loader: DataLoader[Delivery] = DataLoader(
            maker,
            sampler=self._remaining,
            batch_size=None,
            collate_fn=_as_is,
            num_workers=num_workers,
            persistent_workers=num_workers > 0,
            worker_init_fn=_start_worker if num_workers else None,
            pin_memory=pin_memory,
            # Its own generator: torch would otherwise draw a seed from the global one at every epoch.
            generator=torch.Generator(),
        )

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return len(self.sampler)

    def skip(self, num_batches: int) -> None:
        """Leave out the first batches of the next iteration, to continue an epoch; they are not read."""
        self._remaining.first = num_batches

    def __iter__(self) -> Iterator[Batch]:
        deliveries = iter(self._loader)
        while True:
            with explaining_lost_workers():
                delivery = next(deliveries, None)
            if delivery is None:
                return
            if delivery.failure is not None:
                # Now rather than when the error's traceback is released: torch would then wait seconds for
                # them.
                del deliveries
                self.close()
                raise InputError(delivery.failure)
            self.bad_images.update(delivery.bad_images)
            if delivery.batch is not None and len(delivery.batch.indices):
                yield delivery.batch

    def close(self) -> None:
        """End the worker processes now rather than when the loader is collected."""
        self._loader._iterator = None


def make_train_loader(
    split: Split,
    settings: LoaderSettings,
    *,
    rank: int = 0,
    world_size: int = 1,
    on_cache_progress: Progress | None = None,
) -> BatchLoader:
    """Augmented batches of constant size in the order of `settings.sampling`.

    The last incomplete batch is dropped, unless the split is smaller than one batch. With
    `skip_bad_images` an unreadable image is replaced by the next readable one of the split.
    """
    plan = TrainingPlan(
        split.targets,
        batch_size=settings.batch_size,
        sampling=settings.sampling,
        seed=settings.seed,
        rank=rank,
        world_size=world_size,
        balance_threshold=settings.balance_threshold,
    )
    return _loader(split, settings, settings.augmentation, plan, "replace", on_cache_progress)


def make_eval_loader(
    split: Split,
    settings: LoaderSettings,
    *,
    rank: int = 0,
    world_size: int = 1,
    on_cache_progress: Progress | None = None,
) -> BatchLoader:
    """Every image once, in order, resized to the square without augmentation.

    With `skip_bad_images` an unreadable image is left out, so a batch may be smaller; see `indices`.
    """
    plan = EvaluationPlan(len(split), batch_size=settings.batch_size, rank=rank, world_size=world_size)
    return _loader(split, settings, "none", plan, "drop", on_cache_progress)


def _loader(
    split: Split,
    settings: LoaderSettings,
    augmentation_name: AugmentationName,
    plan: TrainingPlan | EvaluationPlan,
    bad_image_rule: BadImageRule,
    on_cache_progress: Progress | None,
) -> BatchLoader:
    if len(split.targets) != len(split.images):
        raise InputError(f"the split has {len(split.images)} images but {len(split.targets)} rows of targets")
    takes_vectors = settings.image_size == 0
    if takes_vectors != (feature_dim_of(split.images) is not None):
        wanted, found = ("feature vectors", "images") if takes_vectors else ("images", "feature vectors")
        raise InputError(f"the model takes {wanted}, and the data are {found}")
    if takes_vectors:
        return BatchLoader(VectorBatchMaker(split), plan, num_workers=0, pin_memory=settings.pin_memory)
    augmentation = AUGMENTATIONS[augmentation_name]
    source = open_cached(
        split.images,
        augmentation.working_size(settings.image_size),
        settings.cache,
        cache_dir=settings.cache_dir,
        skip_bad_images=settings.skip_bad_images,
        on_progress=on_cache_progress,
    )
    maker = BatchMaker(
        source=source,
        targets=np.asarray(split.targets, dtype=np.int8),
        augmentation=augmentation,
        image_size=settings.image_size,
        seed=settings.seed,
        bad_image_rule=bad_image_rule if settings.skip_bad_images else "refuse",
    )
    num_workers = settings.num_workers
    if num_workers is None:
        num_workers = default_num_workers(augmentation_name, decodes=isinstance(source, DecodedImages))
    return BatchLoader(maker, plan, num_workers=num_workers, pin_memory=settings.pin_memory)


def default_num_workers(augmentation: AugmentationName, *, decodes: bool) -> int:
    """No workers if a batch is little more than a copy; else one per core, up to MAX_WORKERS.

    For cached images that are only augmented, one core is left to the encoder.
    """
    if not decodes and augmentation in ("none", "light"):
        return 0
    return min(available_cores() - (0 if decodes else 1), MAX_WORKERS)


def _as_is(delivery: Any) -> Any:
    """Nothing to collate: a plan already describes a whole batch."""
    return delivery


def _start_worker(worker: int) -> None:
    """Leave Ctrl-C to the main process, which ends its workers in order; use one thread per worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _tell_unless_disconnected
    torch.set_num_threads(1)


def _tell_unless_disconnected(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    """Of a worker: its thread that hands over batches has nothing to tell once the main process is gone."""
    if not isinstance(error, (ConnectionError, EOFError)):
        sys.__excepthook__(kind, error, traceback)
