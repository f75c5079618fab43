"""The feature cache: the output of frozen stages, computed once per view of each image, shared by all runs.

A view is one augmented version of every image of a split. Its features are one chunk file. They depend on
the images, the frozen stages and their weights, the image size, the augmentation and the number of the view,
and the name of the file is a digest of these. They do not depend on the method, the seed or the optimiser,
so the runs of a comparison compute them once; a run with four views reuses the two that a run with two views
computed.

The first view is the image itself: training, post-hoc parts and evaluation share its file. The other training
views are augmented; val and test have the first view only.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console

from kmcl.data.dataset import Split
from kmcl.data.decoding import DecodedImages
from kmcl.data.loading import BatchLoader, LoaderSettings, default_num_workers
from kmcl.data.sampling import EvaluationPlan, SamplePlan, TrainingPlan
from kmcl.encoders.stages import digest_of
from kmcl.errors import InputError
from kmcl.features.runtime import FrozenRuntime, FrozenRuntimes, feature_folder
from kmcl.features.views import CHUNK_IMAGES, CachedBatchMaker, ChunkPlan, Features, Indices, ViewImages
from kmcl.models.classifier import Classifier
from kmcl.progress import WorkProgress
from kmcl.runs.planning import RuntimeName
from kmcl.storage.atomic import WriteError, free_bytes, require_space
from kmcl.storage.chunk_file import Chunk, ChunkFile, PartedChunkFile
from kmcl.storage.file_rows import FileRows

FORMAT = "kmcl-features-2"
"""Part of every file's digest: raise it when the meaning of the stored features changes."""


class FeatureCache:
    """Loads batches of features of frozen stages, and computes those that are not in the cache yet.

    The `images` of its batches are rows for `Classifier.score_rows`, in float16; targets and indices are
    those of batches of images, and so are the order of a training epoch and the handling of unreadable
    images.

        cache = FeatureCache(classifier, LoaderSettings(image_size=128), num_views=4, console=console)
        for batch in cache.eval_loader(split, "test", batch_size=64):
            logits = classifier.score_rows(batch.images).logits

    classifier: its encoder has frozen stages (`encoder.freeze`); it is moved to `device` to compute features.
    loading:    image size, augmentation, sampling and seed of the batches, workers and image cache for
                computing features, `skip_bad_images`, and the folder of the files, `cache_dir` (default:
                `features` in the user's cache folder).
    num_views:  augmented views of each training image, at least 1.
    console:    where progress and waiting for another process are reported.
    runtime:    what runs the frozen stages, see `kmcl.features.runtime`.
    runtimes:   where it may be open already.
    """

    def __init__(
        self,
        classifier: Classifier,
        loading: LoaderSettings,
        num_views: int,
        console: Console,
        device: str = "cpu",
        runtime: RuntimeName = "torch",
        runtimes: FrozenRuntimes | None = None,
    ) -> None:
        if num_views < 1:
            raise InputError(f"num_views must be at least 1; got {num_views}")
        if classifier.encoder.num_frozen_stages < 1:
            raise InputError("a feature cache needs an encoder with frozen stages (--frozen-stages)")
        self.num_views = num_views
        self._classifier = classifier
        self._loading = loading
        self._console = console
        self._device = device
        self._runtime_name, self._runtimes = runtime, runtimes or FrozenRuntimes()
        self._files: dict[tuple[int, str, int], PartedChunkFile] = {}
        self._opened: dict[Path, tuple[FileRows, dict[int, str]]] = {}
        self._splits: dict[int, Split] = {}
        self._folder = loading.cache_dir or feature_folder()
        self._num_computed = 0
        self._seconds = 0.0

    @property
    def seconds_per_image(self) -> float | None:
        """Of the features computed so far; None before there are any."""
        return self._seconds / self._num_computed if self._num_computed else None

    def train_loader(
        self, split: Split, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> BatchLoader:
        """Training batches: in every `num_views` epochs each view of an image is used once.

        Computes the missing features, which may take a while. Raises WriteError when they do not fit on the
        disk, InputError when they do not fit into float16, or when an image cannot be read and
        `skip_bad_images` is not set.
        """
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
        maker = self._maker(split, "train", self.num_views, (rank, world_size), drop_unreadable=False)
        return BatchLoader(maker, plan, num_workers=0, pin_memory=loading.pin_memory)

    def eval_loader(
        self, split: Split, name: str, batch_size: int, *, rank: int = 0, world_size: int = 1
    ) -> BatchLoader:
        """Batches of all images in order, without augmentation; computes and raises as `train_loader` does.

        name: of the split, for messages.
        """
        plan = EvaluationPlan(len(split), batch_size=batch_size, rank=rank, world_size=world_size)
        maker = self._maker(split, name, 1, (rank, world_size), drop_unreadable=True)
        return BatchLoader(maker, plan, num_workers=0, pin_memory=self._loading.pin_memory)

    def sample(self, split: Split, name: str, most: int) -> tuple[Features, Indices]:
        """Features of about `most` images of a split, spread over it, and their indices.

        Computes only what is missing of these; images that cannot be read are left out.
        """
        images = ViewImages(split, "none", self._loading)
        file = self._file(images, 0, f"{name}, view 1")
        starts: Sequence[int] = file.starts
        if most < len(split):
            num_chunks = max(1, most // file.chunk_rows)
            places = np.linspace(0, len(starts) - 1, num_chunks).round().astype(int)
            starts = [starts[place] for place in dict.fromkeys(places.tolist())]
        what = f"features of some of {name}"
        with WorkProgress(self._console, what, len(split)) as progress, advising_on_space():
            rows, unreadable = file.some_rows(starts, partial(self._compute, images, 0, progress))
        indices = np.concatenate(
            [np.arange(start, min(start + file.chunk_rows, len(split))) for start in starts]
        )
        readable = ~np.isin(indices, list(unreadable))
        return rows[readable], indices[readable]

    def sample_loader(self, split: Split, indices: npt.NDArray[np.int64], batch_size: int) -> BatchLoader:
        """The first training view of some images, in order."""
        maker = self._maker(split, "train", 1, drop_unreadable=True)
        plan = SamplePlan(indices, batch_size)
        return BatchLoader(maker, plan, num_workers=0, pin_memory=self._loading.pin_memory)

    def _maker(
        self,
        split: Split,
        name: str,
        num_views: int,
        process: tuple[int, int] = (0, 1),
        *,
        drop_unreadable: bool,
    ) -> CachedBatchMaker:
        arrays, unreadable = self.views(split, name, num_views, process)
        if unreadable and not self._loading.skip_bad_images:
            raise InputError(next(iter(unreadable.values())))
        return CachedBatchMaker(
            arrays, split.targets, self._loading.seed, unreadable, drop_unreadable=drop_unreadable
        )

    def views(
        self, split: Split, name: str, num_views: int, process: tuple[int, int] = (0, 1)
    ) -> tuple[list[FileRows], dict[int, str]]:
        """An array N x R for each view of a split, and which images could not be read, and why.

        process: its rank and their number, each of which computes a part of what is missing
        """
        plain = ViewImages(split, "none", self._loading)
        augmented = ViewImages(split, self._loading.augmentation, self._loading)
        views = [plain, *[augmented] * (num_views - 1)]
        files = [self._file(images, view, f"{name}, view {view + 1}") for view, images in enumerate(views)]
        if missing := [file for file in files if file.path not in self._opened]:
            announce_space(self._console, name, missing)
        unreadable: dict[int, str] = {}
        for view, (file, images) in enumerate(zip(files, views, strict=True)):
            if file.path in self._opened:
                unreadable |= self._opened[file.path][1]
                continue
            what = f"features of {name}" + (f", view {view + 1} of {num_views}" if num_views > 1 else "")
            with WorkProgress(self._console, what, len(split)) as progress, advising_on_space():
                found = file.complete_together(
                    partial(self._compute, images, view, progress),
                    *process,
                    on_wait=progress.wait_for_another,
                )
            self._opened[file.path] = file.rows(), found
            unreadable |= found
        return [self._opened[file.path][0] for file in files], unreadable

    def _file(self, images: ViewImages, view: int, what: str) -> PartedChunkFile:
        """The file of a view, whose name takes decoding some of its images once."""
        split = images.split
        key = id(split), images.augmentation, view
        if key not in self._files:
            self._splits[id(split)] = split  # no other has its id while it is kept
            self._files[key] = self._name_file(images, view, what)
        return self._files[key]

    def _name_file(self, images: ViewImages, view: int, what: str) -> PartedChunkFile:
        identity = {
            "format": FORMAT,
            **images.identity,
            "view": view,
            "sample": images.sample(view),
            **self._encoder_identity,
        }
        name = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:32]
        about = {"what": what, **identity}
        path = self._folder / f"{name}.features"
        return PartedChunkFile(
            path,
            len(images.split),
            self._row_shape,
            dtype="<f2",
            chunk_rows=CHUNK_IMAGES,
            about=about,
        )

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
        return (self._classifier.encoder.row_width,)

    @cached_property
    def _runtime(self) -> FrozenRuntime:
        return self._runtimes.open(self._runtime_name, self._classifier, self._device, self._folder)

    def close(self) -> None:
        """Release what runs the frozen stages, and its memory; it is opened again where it is needed."""
        self.__dict__.pop("_runtime", None)
        self._runtimes.close()

    def _features(self, images: torch.Tensor) -> Features:
        features = self._runtime(images)
        halves: Features = features.half().contiguous().numpy()
        if not np.isfinite(halves).all():
            encoder = self._classifier.encoder
            raise InputError(
                f"the features of encoder '{encoder.name}' after {encoder.num_frozen_stages} stages reach "
                f"{features.abs().max().item():.3g}, more than float16 can hold; use another number of "
                "--frozen-stages, or --cached-views 0"
            )
        return halves

    def _compute(
        self, images: ViewImages, view: int, progress: WorkProgress, starts: Sequence[int]
    ) -> Iterator[Chunk]:
        plan = ChunkPlan(view, starts, len(images.split))
        maker = images.maker(progress)
        num_workers = self._loading.num_workers
        if num_workers is None:
            decodes = isinstance(maker.source, DecodedImages)
            num_workers = default_num_workers(images.augmentation, decodes=decodes)
        loader = BatchLoader(maker, plan, num_workers=num_workers, pin_memory=False)
        progress.start(len(starts) * CHUNK_IMAGES)
        began = time.perf_counter()
        try:
            for start, batch in zip(starts, loader, strict=True):
                rows = range(start, start + CHUNK_IMAGES)
                bad = {row: why for row, why in loader.bad_images.items() if row in rows}
                yield Chunk(self._features(batch.images), bad)
                progress.advance(len(batch.indices))
                self._num_computed += len(batch.indices)
        finally:
            loader.close()
            self._seconds += time.perf_counter() - began


ANNOUNCED_BYTES = 2 * 10**9
"""Splits that need more disk space than this are announced."""
ADVICE = (
    "free some space and resume: what was computed stays; or start with fewer --cached-views, "
    "a smaller --image-size, more --frozen-stages or another --cache-dir"
)


@contextmanager
def advising_on_space() -> Iterator[None]:
    """Add what can be done about a full disk to its error; a folder that is refused is an InputError."""
    try:
        yield
    except WriteError as error:
        error.advice = ADVICE
        if error.is_full:
            raise
        raise InputError(f"{error.filename}: cannot be written: {error.strerror}") from error


def announce_space(console: Console, name: str, files: Sequence[ChunkFile]) -> None:
    """Print how much disk space the features of a split need if it is a lot; refuse what cannot fit."""
    num_bytes = sum(file.num_missing_bytes for file in files)
    path = next((file.path for file in files if file.num_missing_bytes), files[0].path)
    with advising_on_space():
        require_space(path, num_bytes)
    if num_bytes > ANNOUNCED_BYTES:
        console.print(
            f"the cached features of {name} will take {num_bytes / 1e9:.1f} GB in {path.parent} "
            f"({free_bytes(path) / 1e9:.1f} GB free)",
            soft_wrap=True,
            highlight=False,
        )
