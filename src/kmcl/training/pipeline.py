"""A run from its plan to its metrics, top to bottom: each stage is a function from one state to the next.

    prepare            the encoder and head under the seed, the post-hoc parts, the loaders
    save_first_model   a usable model in the first minute, where features are cached
    tune               what the plan left to the run: settings.yaml is complete
    fit                the training itself; the best weights on val are kept
    calibrate          post-hoc parts, thresholds and calibration from val
    evaluate, save     val and test, once; metrics.json is written last

A run that was interrupted goes through the same stages: each finds in the folder what it has already done.
"""

from __future__ import annotations

import logging
import math
import signal
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from kmcl.data import Dataset
from kmcl.data.loading import explaining_lost_workers
from kmcl.data.normalisation import IDENTITY
from kmcl.data.pixel_statistics import find_normalisation
from kmcl.data.vectors import feature_dim
from kmcl.encoders.weights import default_weights
from kmcl.evaluation.label_hierarchy import parent_rows
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.evaluation.summary import ChosenOnVal, SplitSummary, measure_splits, metrics_of
from kmcl.features.run_data import RunData
from kmcl.methods.label_statistics import set_label_statistics
from kmcl.models.folder import ModelDescription, build_classifier, save_model
from kmcl.options.methods import MethodOptions
from kmcl.runs.evaluation import write_evaluation
from kmcl.runs.folder import RunFolder, no_folder_if_start_fails
from kmcl.runs.launcher import is_first_process, with_processes_to_resume
from kmcl.runs.resolution import with_changes
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.atomic import write_json
from kmcl.training.calibration import Calibrated, calibrate, predict, prepare_parts, save_first_model
from kmcl.training.callbacks import (
    AtomicCheckpointIO,
    EpochHistory,
    LastCheckpoint,
    TrainingProgress,
    check_checkpoint,
    explaining_refused_logs,
)
from kmcl.training.lightning import Callback, EarlyStopping, Trainer
from kmcl.training.machine import device_of
from kmcl.training.plan import Plan, plan_of
from kmcl.training.processes import WatchProcesses, explaining_lost_processes, print_and_leave
from kmcl.training.sharding import ShardedStrategy
from kmcl.training.states import Clock, Decisions, Fitted, Prepared, RunIO
from kmcl.training.task import Best, ClassificationTask
from kmcl.training.tracking import Tracking
from kmcl.training.tuning import tune
from kmcl.training.unknown_labels import UnknownLabels

PRECISIONS = {"32": "32-true", "bf16": "bf16-mixed", "16": "16-mixed"}


def train(plan: Plan, folder: Path, io: RunIO | None = None) -> dict[str, Any]:
    """Start a run in a new folder; returns its metrics."""
    run, io = RunFolder(folder), io or RunIO()
    if not is_first_process():
        return _run(plan, run, io)
    with no_folder_if_start_fails(run):
        run.create(plan.settings)
        return _run(plan, run, io)


def resume(
    folder: Path,
    io: RunIO | None = None,
    *,
    dataset: Dataset | None = None,
    devices: int | None = None,
    nodes: int | None = None,
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
    if run.checkpoint.is_file():
        check_checkpoint(run.checkpoint)
    began = time.monotonic() - run.used_seconds()
    return _run(replace(plan_of(settings, dataset), began=began), run, io or RunIO())


@explaining_lost_processes()
@explaining_lost_workers()
def _run(plan: Plan, folder: RunFolder, io: RunIO) -> dict[str, Any]:
    if not is_first_process():
        io = replace(io, console=Console(quiet=True))
    prepared = prepare(plan, folder, io)
    with _calibrating_if_interrupted(prepared), _tracking(prepared) as tracking:
        with prepared.decisions.kept():
            save_first_model(prepared)
            tuned = tune(prepared)
        folder.budget_file.unlink(missing_ok=True)  # settings.yaml says it all
        fitted = fit(tuned, tracking)
        if fitted is None:  # the first process does the rest
            return {}
        metrics = save(evaluate(calibrate(tuned)), fitted.best)
        tracking.finish(metrics)
    return metrics


def prepare(plan: Plan, folder: RunFolder, io: RunIO) -> Prepared:
    """Build everything under the seed, in an order that decides what random numbers give."""
    settings, dataset = plan.settings, plan.dataset
    recipe = settings.recipe
    clock = Clock(recipe.budget, plan.began) if recipe.to_choose and recipe.budget is not None else None
    decisions = Decisions(folder, clock)
    if is_first_process():
        decisions.write()
    torch.manual_seed(settings.optimisation.seed)
    encoder = settings.encoder
    weights = encoder.weights or (default_weights(encoder.name) if io.encoder is None else "none")
    has_features = weights != "none" or encoder.name == IDENTITY
    options = settings.method.resolved(pretrained=has_features, labels=dataset.labels)
    description = _describe(settings, dataset, options)
    classifier = build_classifier(replace(description, method=options), weights, io.encoder)
    opened = classifier.encoder
    set_label_statistics(classifier.head, dataset.labels, dataset.splits["train"].targets)
    description = replace(description, image_size=opened.input_size or None, mean=opened.mean, std=opened.std)
    parts = prepare_parts(settings.posthoc, opened, len(dataset.labels))
    if settings.machine.channels_last:
        classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if settings.machine.compile:
        opened.compile()
    if opened.input_size:  # not of feature vectors
        settings = with_changes(settings, {"image_size": opened.input_size})
    device = device_of(settings)
    train_targets = dataset.splits["train"].targets
    unknown = UnknownLabels.of_run(settings.data, train_targets)
    if notice := unknown.notice(train_targets):
        io.console.print(notice, highlight=False, soft_wrap=True)
    data = RunData(dataset, settings, classifier, io.console, device, plan.runtimes)
    return Prepared(
        folder, io, settings, options, classifier, description, parts, data, unknown, clock, decisions, device
    )


def fit(run: Prepared, tracking: Tracking) -> Fitted | None:
    """Train, and save the best weights on val; None in processes other than the first."""
    settings, machine, folder = run.settings.optimisation, run.settings.machine, run.folder
    _quieten_lightning()
    history = EpochHistory(folder.epochs_file)
    callbacks: list[Callback] = [
        history,
        TrainingProgress(run.console, history),
        LastCheckpoint(folder.checkpoint, settings.checkpoint_steps),
        *run.io.callbacks,
        WatchProcesses(run.io.on_lost_process or partial(print_and_leave, folder)),
    ]
    val_split = run.dataset.splits.get("val")
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
        run.classifier,
        run.options,
        settings,
        run.dataset.labels,
        run.dataset.splits["train"],
        val_split,
        on_better=lambda classifier, best: save_model(folder.model, classifier, run.description),
        score=run.data.score,
        unknown=run.unknown,
    )
    process = trainer.global_rank, trainer.world_size
    train_loader = run.data.train_loader(*process)
    if trainer.is_global_zero or isinstance(trainer.strategy, ShardedStrategy):
        task.train_sample = run.data.train_sample_loader()
    val_loaders = [] if val_split is None else [run.data.eval_loader("val", *process)]
    run.data.cache_evaluated_splits(*process)
    resume_from = folder.checkpoint if folder.checkpoint.is_file() else None
    tracking.start(run.settings)
    with explaining_refused_logs(folder.logs):
        trainer.fit(task, train_loader, val_loaders, ckpt_path=resume_from, weights_only=True)
    run.data.report_bad_images("train", train_loader)
    if val_split is None:  # to choose the best weights on
        last = task.whole(run.classifier if task.average is None else task.average.model)  # type: ignore[arg-type]
        if trainer.is_global_zero:
            save_model(folder.model, last, run.description)
    return Fitted(run, task.best) if trainer.is_global_zero else None


@dataclass(frozen=True)
class Evaluated:
    """A run that is measured.

    predictions, summaries: by split
    """

    run: Prepared
    chosen: ChosenOnVal
    rules: LabelRules
    predictions: dict[str, Predictions]
    summaries: dict[str, SplitSummary]


def evaluate(calibrated: Calibrated) -> Evaluated:
    """Predict test, and measure it and val."""
    run, predictions = calibrated.run, {}
    if calibrated.val is not None:
        predictions["val"] = calibrated.val
    if run.settings.evaluation.measure_test and "test" in run.dataset.splits:
        predictions["test"] = predict(run, calibrated.classifier, "test").predictions
    label_counts = (run.dataset.splits["train"].targets == 1).sum(axis=0)
    with run.console.status("metrics"):
        summaries = measure_splits(
            predictions,
            calibrated.rules,
            run.settings.evaluation.threshold,
            label_counts,
            calibrated.chosen,
        )
    return Evaluated(run, calibrated.chosen, calibrated.rules, predictions, summaries)


def save(evaluated: Evaluated, best: Best | None) -> dict[str, Any]:
    """Write predictions, what was measured of them, and the metrics, which are returned; with them the run is
    finished.
    """
    folder = evaluated.run.folder
    for name, predicted in evaluated.predictions.items():
        predicted.save(folder.predictions_file(name))
    write_evaluation(folder, evaluated.rules, evaluated.summaries)
    measured = metrics_of(evaluated.chosen, evaluated.summaries)
    metrics = {
        "best": _describe_best(best, measured),
        "num_train_images": len(evaluated.run.dataset.splits["train"]),
        **measured,
    }
    write_json(folder.metrics_file, metrics)
    return metrics


def _describe_best(best: Best | None, measured: Mapping[str, Any]) -> dict[str, Any] | None:
    """The epoch that was kept; val mAP of the saved model, and of its head without post-hoc parts."""
    if best is None:
        return None
    of_val = (measured["val"] or {}).get("evaluation", {})
    return {
        "val_map": of_val.get("mean_average_precision"),
        "head_val_map": None if math.isnan(best.val_map) else best.val_map,
        "epoch": best.epoch,
        "is_average": best.is_average,
    }


@contextmanager
def _tracking(run: Prepared) -> Iterator[Tracking]:
    """Where the run is followed, from before anything is computed to its end."""
    tracking = Tracking(run.folder, run.settings, partial(run.console.print, soft_wrap=True))
    failed = True
    try:
        tracking.open()
        yield tracking
        failed = False
    finally:
        tracking.close(failed=failed)


@contextmanager
def _calibrating_if_interrupted(run: Prepared) -> Iterator[None]:
    """After Ctrl-C, complete the best model so far, where that is quick; a second one leaves."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:  # Lightning turns Ctrl-C into an exit
        ended = isinstance(stop, SystemExit) and stop.code == 128 + signal.SIGTERM
        if not ended and run.data.is_quick and run.folder.checkpoint.is_file():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning ignores the second
            if "val" in run.dataset.splits:
                run.console.print("stopped; completing the best model so far (Ctrl-C leaves at once)")
                val = calibrate(run).val
                val_map = math.nan if val is None else mean_average_precision(val)
                run.console.print(f"val mAP {100 * val_map:.2f}, in {run.folder.model}", soft_wrap=True)
        raise


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


def _strategy(name: str, num_processes: int) -> Any:
    """Lightning's strategy; one process needs none."""
    if num_processes == 1:
        return "auto"
    return ShardedStrategy(num_processes) if name == "fsdp" else "ddp"


def _quieten_lightning() -> None:
    """Silence Lightning's banners and tips."""
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="pytorch_lightning")
    warnings.filterwarnings("ignore", module="lightning_fabric")
    # Of sharded weights, about operations in place on the output: there are none.
    warnings.filterwarnings("ignore", message="FSDP2-wrapped module .* returned a view")
