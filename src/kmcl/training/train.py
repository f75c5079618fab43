"""A run from settings to metrics: train, keep the best weights on val, evaluate test once."""

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
from torch import nn

from kmcl.data import Dataset
from kmcl.encoders.weights import default_weights
from kmcl.methods import MethodOptions
from kmcl.methods.label_statistics import set_label_statistics
from kmcl.models.classifier import Classifier
from kmcl.models.folder import (
    ModelDescription,
    build_classifier,
    save_model,
)
from kmcl.models.label_rules import LabelRules
from kmcl.training.checkpoints import AtomicCheckpointIO, LastCheckpoint, check_checkpoint
from kmcl.training.finalise import Finalisation
from kmcl.training.history import EpochHistory
from kmcl.training.lightning import Callback, EarlyStopping, TensorBoardLogger, Trainer
from kmcl.training.posthoc_fitting import prepare_parts
from kmcl.training.progress import TrainingProgress
from kmcl.training.run_data import RunData, open_run_dataset
from kmcl.training.run_folder import RunFolder
from kmcl.training.settings import TrainingSettings
from kmcl.training.task import ClassificationTask

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def train(
    settings: TrainingSettings,
    folder: Path,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    dataset: Dataset | None = None,
    encoder: nn.Module | None = None,
) -> dict[str, Any]:
    """Start a run in a new folder; returns its metrics.

    callbacks: of Lightning, besides our own
    dataset:   instead of opening the one that the settings name
    encoder:   the user's own module, where the settings name its class
    """
    run = RunFolder(folder)
    if _is_first_process():
        run.create(settings)
    return _Training(run, settings, console or _silent(), callbacks, dataset, encoder).run_to_end()


def resume(
    folder: Path,
    console: Console | None = None,
    *,
    dataset: Dataset | None = None,
    encoder: nn.Module | None = None,
) -> dict[str, Any]:
    """Continue a run from its last finished epoch; returns its metrics. A finished run is not changed."""
    run = RunFolder(folder)
    settings = run.read_settings()
    if run.metrics_file.is_file():
        return run.read_metrics()
    if run.checkpoint.is_file():
        check_checkpoint(run.checkpoint)
    return _Training(run, settings, console or _silent(), (), dataset, encoder).run_to_end()


class _Training:
    """One run: its data, its model and the steps of training, in order."""

    def __init__(
        self,
        run: RunFolder,
        settings: TrainingSettings,
        console: Console,
        callbacks: Sequence[Callback] = (),
        dataset: Dataset | None = None,
        encoder: nn.Module | None = None,
    ) -> None:
        self.run = run
        self.module = encoder
        self.callbacks = callbacks
        self.settings = settings
        self.console = console
        self.dataset = open_run_dataset(settings, dataset)
        torch.manual_seed(settings.optimisation.seed)
        weights = settings.encoder.weights or (
            default_weights(settings.encoder.name) if encoder is None else "none"
        )
        self.options = settings.method.resolved(pretrained=weights != "none", labels=self.dataset.labels)
        self.description = _describe(settings, self.dataset, self.options)
        described = replace(self.description, method=self.options)
        self.classifier = build_classifier(described, weights, encoder)
        opened = self.classifier.encoder
        set_label_statistics(self.classifier.head, self.dataset.labels, self.dataset.splits["train"].targets)
        self.description = replace(
            self.description, image_size=opened.input_size, mean=opened.mean, std=opened.std
        )
        self.parts = prepare_parts(settings.posthoc, opened, len(self.dataset.labels))
        if settings.machine.channels_last:
            self.classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if settings.machine.compile:
            opened.compile()
        first_console = console if _is_first_process() else _silent()
        self.data = RunData(self.dataset, settings, self.classifier, first_console, self._device())

    def run_to_end(self) -> dict[str, Any]:
        trainer, task = self._fit()
        if not trainer.is_global_zero:
            return {}
        if "val" not in self.dataset.splits:
            last = self.classifier if task.average is None else task.average.model
            self._save(last)  # no val split to choose the best weights on
        finalisation = Finalisation(
            self.run,
            self.settings,
            self.data,
            self.parts,
            self.module,
            self._device(),
            self.console,
        )
        return finalisation.run_to_metrics(task.best)

    def _fit(self) -> tuple[Trainer, ClassificationTask]:
        settings, machine = self.settings.optimisation, self.settings.machine
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
        num_processes = (machine.devices or 1) * machine.nodes
        trainer = Trainer(
            accelerator=machine.accelerator,
            devices=machine.devices or "auto",
            num_nodes=machine.nodes,
            strategy="ddp" if num_processes > 1 else "auto",
            precision=PRECISIONS[machine.precision],  # type: ignore[arg-type]
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
            self.options,
            settings,
            self.dataset.labels,
            self.dataset.splits["train"],
            val_split,
            on_better=lambda classifier, best: self._save(classifier),
            score=Classifier.score_rows if self.data.from_rows else Classifier.__call__,
        )
        process = trainer.global_rank, trainer.world_size
        train_loader = self.data.train_loader(*process)
        val_loaders = [] if val_split is None else [self.data.eval_loader("val", *process)]
        resume_from = self.run.checkpoint if self.run.checkpoint.is_file() else None
        trainer.fit(task, train_loader, val_loaders, ckpt_path=resume_from, weights_only=True)
        self.data.report_bad_images("train", train_loader)
        return trainer, task

    def _save(self, classifier: Any) -> None:
        save_model(self.run.model, classifier, self.description)

    def _device(self) -> str:
        """The device for computations outside the trainer."""
        accelerated = self.settings.machine.accelerator in ("auto", "cuda", "gpu")
        return "cuda" if accelerated and torch.cuda.is_available() else "cpu"


def _describe(settings: TrainingSettings, dataset: Dataset, options: MethodOptions) -> ModelDescription:
    encoder = settings.encoder
    return ModelDescription(
        rules=LabelRules(dataset.labels),
        method=options.for_model(),
        encoder=encoder.name,
        image_size=encoder.image_size,
        in_channels=1 if encoder.grey else 3,
        frozen_stages=encoder.frozen_stages,
    )


def _is_first_process() -> bool:
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", 0))) == 0


def _silent() -> Console:
    return Console(quiet=True)


def _quieten_lightning() -> None:
    """Silence Lightning's banners and tips."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")
