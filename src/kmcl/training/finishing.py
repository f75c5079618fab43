"""The end of a run: what KMCL remembers, thresholds and calibration from val, and the one look at test."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from kmcl.data import Dataset
from kmcl.data.companions import find_companions
from kmcl.data.loading import BatchLoader
from kmcl.evaluation.inference import predict_split
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.probability_bands import fit_bands
from kmcl.evaluation.summary import summarise_run
from kmcl.methods.kernel_mixture import KernelMixtureMethodHead
from kmcl.methods.model_folder import ModelDescription, load_model, save_description, save_model
from kmcl.models.classifier import Classifier, MapsClassifier
from kmcl.training.remembering import make_memory
from kmcl.training.run_folder import RunFolder, write_json
from kmcl.training.settings import TrainingSettings
from kmcl.training.task import Best


@dataclass(frozen=True)
class Finishing:
    """What is done with the best weights of a run once they are found.

    eval_loader: batches of the split of that name; of maps in place of images where `from_maps`.
    on_loaded:   told of a split and its loader when all of it has been read.
    """

    run: RunFolder
    settings: TrainingSettings
    dataset: Dataset
    device: str
    eval_loader: Callable[[str], BatchLoader]
    on_loaded: Callable[[str, BatchLoader], None]
    from_maps: bool

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
        """Give a KMCL head its memory, where val finds one of use, and save the model with it."""
        head, memory_size = classifier.head, self.settings.memory_size
        can_remember = isinstance(head, KernelMixtureMethodHead) and "val" in self.dataset.splits
        if not can_remember or not memory_size or head.memory is not None:
            return description  # a memory that is there already was saved before an interruption
        train, val = (self._predict(classifier, name) for name in ("train", "val"))
        memory = make_memory(train, val, memory_size, self.settings.seed)
        if memory is None:
            return description
        head.memory = memory.to(self.device)
        description = replace(
            description, options=replace(description.options, memory_size=memory.num_images)
        )
        save_model(self.run.model, classifier, description)
        return description

    def _predict(self, classifier: Classifier, name: str) -> Predictions:
        loader = self.eval_loader(name)
        scorer = MapsClassifier(classifier) if self.from_maps else classifier
        predictions = predict_split(scorer, self.dataset.labels, self.dataset.splits[name], loader)
        self.on_loaded(name, loader)
        return predictions


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))
