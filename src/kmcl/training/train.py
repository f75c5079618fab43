"""A run from settings to metrics: train, keep the best weights on val, evaluate test once."""

from __future__ import annotations

import logging
import signal
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from torch import nn

from kmcl.data import Dataset
from kmcl.data.loading import explaining_lost_workers
from kmcl.data.normalisation import IDENTITY
from kmcl.data.pixel_statistics import find_normalisation
from kmcl.data.vectors import feature_dim
from kmcl.encoders.weights import default_weights
from kmcl.evaluation.label_hierarchy import parent_rows
from kmcl.evaluation.label_rules import LabelRules
from kmcl.methods.label_statistics import set_label_statistics
from kmcl.models.classifier import Classifier
from kmcl.models.folder import (
    ModelDescription,
    build_classifier,
    save_model,
)
from kmcl.options.methods import MethodOptions
from kmcl.runs.dataset import open_run_dataset
from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings
from kmcl.training.checkpoints import AtomicCheckpointIO, LastCheckpoint, check_checkpoint
from kmcl.training.completion import Completion
from kmcl.training.finalise import Finalisation
from kmcl.training.history import EpochHistory
from kmcl.training.launcher import (
    is_first_process,
    with_launched_processes,
    with_processes_to_resume,
)
from kmcl.training.lightning import Callback, EarlyStopping, Trainer
from kmcl.training.log_errors import explaining_refused_logs
from kmcl.training.lost_processes import (
    OnLost,
    WatchProcesses,
    explaining_lost_processes,
    print_and_leave,
)
from kmcl.training.planning import device_of
from kmcl.training.posthoc_fitting import prepare_parts
from kmcl.training.progress import TrainingProgress
from kmcl.training.run_data import RunData
from kmcl.training.schedule import Clock, used_seconds
from kmcl.training.sharding import ShardedStrategy
from kmcl.training.starting import (
    check_machine,
    no_folder_if_start_fails,
    with_absolute_paths,
    with_image_size,
)
from kmcl.training.task import ClassificationTask
from kmcl.training.tracking import Tracking

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def train(
    settings: TrainingSettings,
    folder: Path,
    console: Console | None = None,
    callbacks: Sequence[Callback] = (),
    *,
    dataset: Dataset | None = None,
    encoder: nn.Module | None = None,
    began: float | None = None,
    complete_if_interrupted: bool = False,
    on_lost_process: OnLost = print_and_leave,
) -> dict[str, Any]:
    """Start a run in a new folder; returns its metrics.

    callbacks: of Lightning, besides our own
    dataset:   instead of opening the one that the settings name
    encoder:   the user's own module, where the settings name its class
    began:     `time.monotonic()` when its budget began; now if not given
    complete_if_interrupted: after Ctrl-C, fit post-hoc parts and label rules of the best model so far
    on_lost_process: ends a process that waits for another which is no longer there
    """
    settings = with_launched_processes(settings)
    began = time.monotonic() if began is None else began
    check_machine(settings)
    run, settings = RunFolder(folder), with_absolute_paths(settings)
    callbacks = (*callbacks, WatchProcesses(on_lost_process))
    if not is_first_process():
        return _Training(run, settings, _silent(), callbacks, dataset, encoder, began=began).run_to_end()
    with no_folder_if_start_fails(run):
        run.create(settings)
        if clock := _clock(settings, began):
            clock.write(run.budget_file)
        training = _Training(run, settings, console or _silent(), callbacks, dataset, encoder, began=began)
        training.settings = with_image_size(settings, training.classifier.encoder.input_size)
        run.write_settings(training.settings)
        with training.completing(complete_if_interrupted):
            return training.run_to_end()


def resume(
    folder: Path,
    console: Console | None = None,
    *,
    dataset: Dataset | None = None,
    encoder: nn.Module | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    complete_if_interrupted: bool = False,
    on_lost_process: OnLost = print_and_leave,
) -> dict[str, Any]:
    """Continue a run from its last finished epoch; returns its metrics. A finished run is not changed.

    What the run chose for its budget stays; what it has not chosen yet has the time that is left.

    devices, nodes: where there are now more or fewer than before
    """
    run = RunFolder(folder)
    settings = run.read_settings()
    if run.metrics_file.is_file():
        return run.read_metrics()
    settings = with_processes_to_resume(settings, devices, nodes)
    check_machine(settings)
    if run.checkpoint.is_file():
        check_checkpoint(run.checkpoint)
    callbacks = (WatchProcesses(on_lost_process),)
    began = time.monotonic() - used_seconds(run.budget_file)
    training = _Training(run, settings, console or _silent(), callbacks, dataset, encoder, began=began)
    with training.completing(complete_if_interrupted):
        return training.run_to_end()


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
        *,
        began: float,
    ) -> None:
        self.run = run
        self.began = began
        self.module = encoder
        self.callbacks = callbacks
        self.settings = settings
        self.console = console
        self.dataset = open_run_dataset(settings, dataset)
        torch.manual_seed(settings.optimisation.seed)
        weights = settings.encoder.weights or (
            default_weights(settings.encoder.name) if encoder is None else "none"
        )
        has_features = weights != "none" or settings.encoder.name == IDENTITY
        self.options = settings.method.resolved(pretrained=has_features, labels=self.dataset.labels)
        self.description = _describe(settings, self.dataset, self.options)
        described = replace(self.description, method=self.options)
        self.classifier = build_classifier(described, weights, encoder)
        opened = self.classifier.encoder
        set_label_statistics(self.classifier.head, self.dataset.labels, self.dataset.splits["train"].targets)
        self.description = replace(
            self.description, image_size=opened.input_size or None, mean=opened.mean, std=opened.std
        )
        self.parts = prepare_parts(settings.posthoc, opened, len(self.dataset.labels))
        if settings.machine.channels_last:
            self.classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if settings.machine.compile:
            opened.compile()
        first_console = console if is_first_process() else _silent()
        self.device = device_of(settings)
        self.data = RunData(self.dataset, settings, self.classifier, first_console, self.device)

    @explaining_lost_processes()
    @explaining_lost_workers()
    def run_to_end(self) -> dict[str, Any]:
        tracking = Tracking(self.run, self.settings, partial(self.console.print, soft_wrap=True))
        failed = True
        try:
            tracking.open()
            if self.settings.recipe.to_choose:
                self._complete_settings()
            self.run.budget_file.unlink(missing_ok=True)
            trainer, task = self._fit(tracking)
            if "val" not in self.dataset.splits:  # to choose the best weights on
                last = self.classifier if task.average is None else task.average.model
                last = task.whole(last)  # type: ignore[arg-type]
                if trainer.is_global_zero:
                    self._save(last)
            if not trainer.is_global_zero:
                return {}
            metrics = self._finalisation().run_to_metrics(task.best)
            tracking.finish(metrics)
            failed = False
        finally:
            tracking.close(failed=failed)
        return metrics

    @contextmanager
    def completing(self, wanted: bool) -> Iterator[None]:
        """After Ctrl-C, complete the best model so far, where that is quick; a second one leaves."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns Ctrl-C into an exit
            ended = isinstance(stop, SystemExit) and stop.code == 128 + signal.SIGTERM
            if wanted and not ended and self.data.is_quick and self.run.checkpoint.is_file():
                signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning ignores the second
                if "val" in self.dataset.splits:
                    self.console.print("stopped; completing the best model so far (Ctrl-C leaves at once)")
                    val_map = self._finalisation().complete_model()
                    self.console.print(f"val mAP {100 * val_map:.2f}, in {self.run.model}", soft_wrap=True)
            raise

    def _finalisation(self) -> Finalisation:
        return Finalisation(
            self.run,
            self.settings,
            self.data,
            self.parts,
            self.module,
            self.device,
            self.console,
        )

    def _complete_settings(self) -> None:
        completion = Completion(
            self.run,
            self.settings,
            self.data,
            self.classifier,
            self.description,
            self.options,
            _clock(self.settings, self.began),
            self.console,
            self.device,
        )
        self.settings = completion.complete()

    def _fit(self, tracking: Tracking) -> tuple[Trainer, ClassificationTask]:
        settings, machine = self.settings.optimisation, self.settings.machine
        _quieten_lightning()
        history = EpochHistory(self.run.epochs_file)
        callbacks: list[Any] = [
            history,
            TrainingProgress(self.console, history),
            LastCheckpoint(self.run.checkpoint, settings.checkpoint_steps),
        ]
        callbacks.extend(self.callbacks)
        val_split = self.dataset.splits.get("val")
        if settings.patience is not None and val_split is not None:
            callbacks.append(EarlyStopping("val/auc_best", mode="max", patience=settings.patience))
        num_processes = (machine.devices or 1) * machine.nodes
        trainer = Trainer(
            accelerator=machine.accelerator,
            devices=machine.devices or "auto",
            num_nodes=machine.nodes,
            strategy=_strategy(machine.strategy, num_processes),
            precision=PRECISIONS[machine.precision],  # type: ignore[arg-type]
            max_epochs=settings.epochs,
            accumulate_grad_batches=settings.accumulate,
            gradient_clip_val=settings.clip_norm,
            callbacks=callbacks,
            plugins=[AtomicCheckpointIO()],
            logger=tracking.loggers or False,
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
            unknown=self.data.unknown,
        )
        process = trainer.global_rank, trainer.world_size
        train_loader = self.data.train_loader(*process)
        if trainer.is_global_zero or isinstance(trainer.strategy, ShardedStrategy):
            task.train_sample = self.data.train_sample_loader()
        val_loaders = [] if val_split is None else [self.data.eval_loader("val", *process)]
        self.data.cache_evaluated_splits(*process)
        resume_from = self.run.checkpoint if self.run.checkpoint.is_file() else None
        tracking.start(self.settings)
        with explaining_refused_logs(self.run.logs):
            trainer.fit(task, train_loader, val_loaders, ckpt_path=resume_from, weights_only=True)
        self.data.report_bad_images("train", train_loader)
        return trainer, task

    def _save(self, classifier: Any) -> None:
        save_model(self.run.model, classifier, self.description)


def _describe(settings: TrainingSettings, dataset: Dataset, options: MethodOptions) -> ModelDescription:
    encoder = settings.encoder
    colours = 1 if encoder.grey else 3
    normalisation = find_normalisation(encoder.normalisation, colours, dataset, settings.data.cache_dir)
    return ModelDescription(
        rules=LabelRules(
            dataset.labels,
            parents=parent_rows(dataset.labels, dataset.parents) if dataset.parents else None,
        ),
        method=options.for_model(),
        encoder=encoder.name,
        image_size=encoder.image_size,
        in_channels=feature_dim(dataset) or colours,
        frozen_stages=encoder.frozen_stages,
        mean=None if normalisation is None else normalisation.mean,
        std=None if normalisation is None else normalisation.std,
    )


def _clock(settings: TrainingSettings, began: float) -> Clock | None:
    """Of a run that chooses settings itself, within a budget."""
    recipe = settings.recipe
    return Clock(recipe.budget, began) if recipe.to_choose and recipe.budget is not None else None


def _strategy(name: str, num_processes: int) -> Any:
    """Lightning's strategy; one process needs none."""
    if num_processes == 1:
        return "auto"
    return ShardedStrategy(num_processes) if name == "fsdp" else "ddp"


def _silent() -> Console:
    return Console(quiet=True)


def _quieten_lightning() -> None:
    """Silence Lightning's banners and tips."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")
    # Of sharded weights, about operations in place on the output: there are none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
