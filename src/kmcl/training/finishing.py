"""The end of a run: what KMCL remembers, thresholds and calibration from val, and the one look at test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from kmcl.data import Dataset
from kmcl.data.companions import find_companions
from kmcl.data.loading import BatchLoader
from kmcl.evaluation.inference import predict_split
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.probability_bands import fit_bands
from kmcl.evaluation.summary import summarise_run
from kmcl.methods.kernel_mixture import KernelMixtureMethodHead
from kmcl.methods.model_folder import ModelDescription, load_model, save_description, save_model
from kmcl.models.classifier import Classifier, HeadOutput, RowsClassifier
from kmcl.models.encoder import Encoder, build_encoder
from kmcl.models.recollection import Recollection
from kmcl.models.weights import default_weights
from kmcl.training.image_progress import ImageProgress
from kmcl.training.remembering import draw_rows, make_memory, weigh_recollection
from kmcl.training.run_folder import RunFolder, write_json
from kmcl.training.settings import TrainingSettings
from kmcl.training.task import Best


@dataclass(frozen=True)
class Finishing:
    """What is done with the best weights of a run once they are found.

    eval_loader: batches of the split of that name; where `from_rows`, of rows of the frozen stages.
    on_loaded:   told of a split and its loader when all of it has been read.
    """

    run: RunFolder
    settings: TrainingSettings
    dataset: Dataset
    device: str
    eval_loader: Callable[[str], BatchLoader]
    on_loaded: Callable[[str, BatchLoader], None]
    from_rows: bool
    console: Console

    def finish(self, best: Best | None) -> dict[str, Any]:
        """Predict, measure, complete the model's description; returns the metrics, which are written last."""
        classifier, description = load_model(self.run.model)
        classifier.to(self.device)
        classifier.encoder.freeze(self.settings.frozen_stages)
        description = self._remember(classifier, description)
        predictions = {}
        for name in ("val", "test") if self.settings.measure_test else ("val",):
            if name not in self.dataset.splits:
                continue
            predictions[name] = self._predict(classifier, name)
            file = self.run.predictions_file(name)
            file.parent.mkdir(exist_ok=True)
            predictions[name].save(file)
        train_targets = self.dataset.splits["train"].targets
        summary = summarise_run(
            val=predictions.get("val"),
            test=predictions.get("test"),
            threshold=self.settings.threshold,
            criterion=self.settings.threshold_criterion,
            target=self.settings.threshold_target,
            label_counts=(train_targets == 1).sum(axis=0),
            seed=self.settings.seed,
        )
        description = replace(description, companions=find_companions(train_targets))
        if summary.thresholds is not None:
            description = replace(description, thresholds=_numbers(summary.thresholds.values))
        calibrator = summary.temperatures_and_biases
        if calibrator is not None:
            bands = fit_bands(predictions["val"], calibrator.temperatures, calibrator.biases)
            description = replace(
                description,
                temperatures=_numbers(calibrator.temperatures),
                biases=_numbers(calibrator.biases),
                bands=bands.to_rows(),
            )
        save_description(self.run.model, description)
        metrics = {"best": None if best is None else asdict(best), **summary.to_json()}
        if best is not None and math.isnan(best.val_map):
            metrics["best"]["val_map"] = None
        write_json(self.run.metrics_file, metrics)
        return metrics

    def _remember(self, classifier: Classifier, description: ModelDescription) -> ModelDescription:
        """Give a KMCL head what it remembers, weighed on val, and save the model with it."""
        head, settings = classifier.head, self.settings
        if not isinstance(head, KernelMixtureMethodHead) or "val" not in self.dataset.splits:
            return description
        if head.memory is not None or head.recollection is not None:
            return description  # saved before an interruption
        if settings.recollection_size and settings.frozen_stages:
            before = self._encoder_before_training(description)
            for encoder in (before, classifier.encoder):
                encoder.hand_on(settings.frozen_stages)
            head.recollection = Recollection(before, len(description.labels)).to(self.device)
        if not settings.memory_size and head.recollection is None:
            return description
        train, train_statistics = self._see(classifier, "train")
        val, val_statistics = self._see(classifier, "val")
        if head.recollection is not None:
            rows = draw_rows(len(train), settings.recollection_size, settings.seed)
            remembered = train_statistics[rows].to(self.device)
            head.recollection.remember(remembered, torch.from_numpy(train.targets[rows]))
            val = weigh_recollection(head.recollection, val, val_statistics.to(self.device))
            if not head.recollection.speaks:
                head.recollection = None
        if settings.memory_size:
            head.memory = make_memory(train, val, settings.memory_size, settings.seed).to(self.device)
        options = replace(
            description.options,
            recollection_size=0 if head.recollection is None else head.recollection.num_images,
            memory_size=0 if head.memory is None else head.memory.num_images,
        )
        description = replace(description, options=options)
        save_model(self.run.model, classifier, description)
        return description

    def _encoder_before_training(self, description: ModelDescription) -> Encoder:
        weights = self.settings.weights or default_weights(self.settings.encoder)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.settings.seed)  # as at the start, for weights that are not pretrained
            encoder = build_encoder(
                description.encoder, weights, description.in_channels, description.image_size
            )
        return encoder.to(self.device)

    def _see(self, classifier: Classifier, name: str) -> tuple[Predictions, Tensor]:
        """Predictions of a split, and what the head's recollection sees of its images."""
        seen: list[Tensor] = []

        def keep(output: HeadOutput) -> None:
            if output.statistics is not None:
                seen.append(output.statistics.cpu())

        num_images = len(self.dataset.splits[name])
        with ImageProgress(self.console, f"{name} for the memory", num_images) as progress:
            progress.start(num_images)
            predictions = self._predict(classifier, name, on_output=keep, on_progress=progress.advance)
        return predictions, torch.cat(seen) if seen else torch.empty(0)

    def _predict(self, classifier: Classifier, name: str, **heard: Any) -> Predictions:
        loader = self.eval_loader(name)
        scorer = RowsClassifier(classifier) if self.from_rows else classifier
        split = self.dataset.splits[name]
        predictions = predict_split(scorer, self.dataset.labels, split, loader, **heard)
        self.on_loaded(name, loader)
        return predictions


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))
