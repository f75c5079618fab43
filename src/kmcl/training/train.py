"""A run from settings to metrics: train, keep the best on val, touch test once."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from kmcl.data import Dataset, open_dataset
from kmcl.data.loading import BatchLoader, LoaderSettings, make_eval_loader, make_train_loader
from kmcl.data.selection import take_fraction
from kmcl.errors import InputError
from kmcl.methods import find_method
from kmcl.methods.label_statistics import read_word_vectors, tell_label_statistics
from kmcl.methods.model_folder import (
    ModelDescription,
    build_classifier,
    save_model,
)
from kmcl.models.classifier import Classifier
from kmcl.models.weights import default_weights
from kmcl.training.checkpoints import AtomicCheckpointIO, LastCheckpoint, check_checkpoint
from kmcl.training.finishing import Finishing
from kmcl.training.history import EpochHistory
from kmcl.training.kept_maps import KeptMaps
from kmcl.training.lightning import Callback, EarlyStopping, TensorBoardLogger, Trainer
from kmcl.training.method_options import method_options
from kmcl.training.progress import TrainingProgress
from kmcl.training.run_folder import RunFolder
from kmcl.training.settings import TrainingSettings
from kmcl.training.task import ClassificationTask

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}
MEMORY_CACHE_LIMIT = 4 * 2**30
"""Bytes of decoded images that cache="auto" keeps in memory."""


def train(
    settings: TrainingSettings,
    folder: Path,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
) -> dict[str, Any]:
    """Start a run in a new folder; returns its metrics. `callbacks` are Lightning's, besides our own."""
    run = RunFolder(folder)
    if _is_first_process():
        run.create(settings)
    return _Training(run, settings, console or _silent(), callbacks).run_to_end()


def resume(folder: Path, console: Console | None = None) -> dict[str, Any]:
    """Continue a run from its last finished epoch; returns its metrics. A finished run is left alone."""
    run = RunFolder(folder)
    settings = run.read_settings()
    if run.metrics_file.is_file():
        return run.read_metrics()
    if run.checkpoint.is_file():
        check_checkpoint(run.checkpoint)
    return _Training(run, settings, console or _silent()).run_to_end()


class _Training:
    """One run: its data and model, what is done with them, in order."""

    def __init__(
        self,
        run: RunFolder,
        settings: TrainingSettings,
        console: Console,
        callbacks: Sequence[Callback] = (),
    ) -> None:
        self.run = run
        self.callbacks = callbacks
        self.settings = settings
        self.console = console
        self.method = find_method(settings.method)
        self.dataset = _open(settings)
        torch.manual_seed(settings.seed)
        vectors = (
            read_word_vectors(settings.word_vectors, self.dataset.labels) if settings.word_vectors else None
        )
        self.description = _describe(settings, self.dataset, vectors)
        weights = settings.weights or default_weights(settings.encoder)
        self.classifier = build_classifier(self.description, weights)
        tell_label_statistics(self.classifier.head, self.dataset.splits["train"].targets, vectors)
        self.image_size = self.classifier.encoder.input_size
        encoder = self.classifier.encoder
        self.description = replace(
            self.description, image_size=self.image_size, mean=encoder.mean, std=encoder.std
        )
        self.classifier.encoder.freeze(settings.frozen_stages)
        if settings.channels_last:
            self.classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if settings.compile:
            self.classifier.encoder.compile()
        self.kept: KeptMaps | None = None
        if settings.kept_views:
            talks = console if _is_first_process() else _silent()
            loading = self._loader_settings()
            self.kept = KeptMaps(self.classifier, loading, settings.kept_views, talks, self._device())

    def run_to_end(self) -> dict[str, Any]:
        trainer, task = self._fit()
        if not trainer.is_global_zero:
            return {}
        if "val" not in self.dataset.splits:
            last = self.classifier if task.average is None else task.average.model
            self._save(last)  # nothing to choose on: the end of training
        finishing = Finishing(
            self.run,
            self.settings,
            self.dataset,
            self._device(),
            self._eval_loader,
            self._report_bad_images,
            from_rows=self.kept is not None,
            console=self.console,
        )
        return finishing.finish(task.best)

    def _fit(self) -> tuple[Trainer, ClassificationTask]:
        settings = self.settings
        _quieten_lightning()
        history = EpochHistory(self.run.epochs_file)
        callbacks: list[Any] = [
            history,
            TrainingProgress(self.console, history),
            LastCheckpoint(self.run.checkpoint),
        ]
        callbacks.extend(self.callbacks)
        val_split = self.dataset.splits.get("val")
        if settings.patience is not None and val_split is not None:
            callbacks.append(EarlyStopping("val/map_best", mode="max", patience=settings.patience))
        num_processes = (settings.devices or 1) * settings.nodes
        trainer = Trainer(
            accelerator=settings.accelerator,
            devices=settings.devices or "auto",
            num_nodes=settings.nodes,
            strategy="ddp" if num_processes > 1 else "auto",
            precision=PRECISIONS[settings.precision],  # type: ignore[arg-type]
            max_epochs=settings.epochs,
            accumulate_grad_batches=settings.accumulate,
            gradient_clip_val=settings.clip_norm,
            callbacks=callbacks,
            plugins=[AtomicCheckpointIO()],
            logger=TensorBoardLogger(self.run.path, name="", version="logs"),
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            num_sanity_val_steps=0,
            log_every_n_steps=50,
        )
        task = ClassificationTask(
            self.classifier,
            self.method,
            self.description.options,
            settings,
            self.dataset.labels,
            self.dataset.splits["train"],
            val_split,
            on_better=lambda classifier, best: self._save(classifier),
            score=Classifier.__call__ if self.kept is None else Classifier.score_rows,
        )
        train_loader = self._train_loader(trainer)
        if len(train_loader) == 0:
            raise InputError(
                f"the train split has {len(self.dataset.splits['train'])} images, too few for a batch of "
                f"{settings.batch_size}; use a smaller --batch-size"
            )
        val_loaders = [] if val_split is None else [self._eval_loader("val", trainer)]
        resume_from = self.run.checkpoint if self.run.checkpoint.is_file() else None
        trainer.fit(task, train_loader, val_loaders, ckpt_path=resume_from, weights_only=True)
        self._report_bad_images("train", train_loader)
        return trainer, task

    def _save(self, classifier: Any) -> None:
        save_model(self.run.model, classifier, self.description)

    def _loader_settings(self, world_size: int = 1) -> LoaderSettings:
        settings = self.settings
        if settings.batch_size % world_size:
            raise InputError(
                f"batch_size {settings.batch_size} must be a multiple of the {world_size} processes"
            )
        return LoaderSettings(
            batch_size=settings.batch_size // world_size,
            image_size=self.image_size,
            num_workers=settings.workers,
            augmentation=settings.augmentation,
            sampling=settings.sampling,
            cache=self._cache(),
            cache_dir=settings.cache_dir,
            seed=settings.seed,
            skip_bad_images=settings.skip_bad_images,
            pin_memory=torch.cuda.is_available(),
        )

    def _cache(self) -> Any:
        if self.settings.cache != "auto":
            return self.settings.cache
        num_images = sum(len(split) for split in self.dataset.splits.values())
        num_bytes = 3 * num_images * self.image_size**2
        return "memory" if num_bytes <= MEMORY_CACHE_LIMIT else "none"

    def _train_loader(self, trainer: Trainer) -> BatchLoader:
        split = self.dataset.splits["train"]
        rank, world_size = trainer.global_rank, trainer.world_size
        loading = self._loader_settings(world_size)
        if self.kept is not None:
            return self.kept.train_loader(split, loading.batch_size, rank=rank, world_size=world_size)
        return make_train_loader(split, loading, rank=rank, world_size=world_size)

    def _eval_loader(self, name: str, trainer: Trainer | None = None) -> BatchLoader:
        split = self.dataset.splits[name]
        rank, world_size = (trainer.global_rank, trainer.world_size) if trainer else (0, 1)
        loading = self._loader_settings(world_size)
        if self.kept is not None:
            return self.kept.eval_loader(split, name, loading.batch_size, rank=rank, world_size=world_size)
        return make_eval_loader(split, loading, rank=rank, world_size=world_size)

    def _device(self) -> str:
        """Where what runs outside the trainer runs."""
        accelerated = self.settings.accelerator in ("auto", "cuda", "gpu")
        return "cuda" if accelerated and torch.cuda.is_available() else "cpu"

    def _report_bad_images(self, name: str, loader: BatchLoader) -> None:
        if loader.bad_images:
            num_images = len(self.dataset.splits[name])
            self.console.print(
                f"{len(loader.bad_images)} of {num_images} images could not be read in {name}:"
            )
            for message in list(loader.bad_images.values())[:10]:
                self.console.print(f"  {message}", soft_wrap=True)


def _open(settings: TrainingSettings) -> Dataset:
    dataset = open_dataset(settings.data, **settings.data_options)
    if "train" not in dataset.splits or len(dataset.splits["train"]) == 0:
        raise InputError(f"{dataset.name}: has no images to train on (no train split)")
    if settings.train_fraction < 1:
        part = take_fraction(dataset.splits["train"], settings.train_fraction, settings.seed)
        dataset = replace(dataset, splits=dataset.splits | {"train": part})
    if not (dataset.splits["train"].targets == 1).any():
        raise InputError(f"{dataset.name}: no image of the train split carries any label")
    return dataset


def _describe(
    settings: TrainingSettings, dataset: Dataset, word_vectors: torch.Tensor | None
) -> ModelDescription:
    return ModelDescription(
        labels=dataset.labels,
        method=settings.method,
        encoder=settings.encoder,
        image_size=settings.image_size,
        in_channels=1 if settings.grey else 3,
        # What is remembered is known when training ends.
        options=replace(method_options(settings, word_vectors), memory_size=0, recollection_size=0),
    )


def _is_first_process() -> bool:
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0))) == 0


def _silent() -> Console:
    return Console(quiet=True)


def _quieten_lightning() -> None:
    """Its banners and tips are not this program's to print."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")
