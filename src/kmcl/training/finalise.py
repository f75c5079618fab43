"""The end of a run: post-hoc parts, thresholds and calibration from val, one evaluation on test."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from rich.console import Console
from torch import nn

from kmcl.data import Dataset
from kmcl.data.cooccurrence import find_cooccurring_labels
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.probability_intervals import fit_probability_intervals
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.evaluation.summary import ChosenOnVal, choose_on_val, measure_splits, metrics_of
from kmcl.models.classifier import Classifier
from kmcl.models.description import FittedPart, ModelDescription
from kmcl.models.folder import load_model, remove_unlisted_parts, save_description, save_model
from kmcl.posthoc.interface import PosthocPart
from kmcl.progress import WorkProgress
from kmcl.runs.evaluation import write_evaluation
from kmcl.runs.folder import RunFolder
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.atomic import write_json
from kmcl.training.inference import predict_split
from kmcl.training.posthoc_fitting import Observations, Observed, corrected, fit_parts
from kmcl.training.run_data import RunData
from kmcl.training.task import Best


@dataclass(frozen=True)
class Finalisation:
    """Finalises a run: everything that follows training, with the best weights.

    parts:       the post-hoc parts, built from the encoder before training
    module:      the encoder, where it is the user's own
    """

    run: RunFolder
    settings: TrainingSettings
    data: RunData
    parts: Mapping[str, PosthocPart]
    module: nn.Module | None
    device: str
    console: Console

    @property
    def dataset(self) -> Dataset:
        return self.data.dataset

    def run_to_metrics(self, best: Best | None) -> dict[str, Any]:
        """Predict, evaluate, complete the model's description; the metrics it returns are written last."""
        evaluation = self.settings.evaluation
        classifier, description = self._load()
        predictions = {}
        if "val" in self.dataset.splits:
            description, predictions["val"] = self._fit_on_val(classifier, description)
        elif self.parts:
            self.console.print(
                f"There is no val split to tune post-hoc parts on: the model has no {', '.join(self.parts)}."
            )
        if evaluation.measure_test and "test" in self.dataset.splits:
            predictions["test"] = self._predict(classifier, "test").predictions
        for name, predicted in predictions.items():
            predicted.save(self.run.predictions_file(name))
        train_targets = self.dataset.splits["train"].targets
        with self.console.status("thresholds, calibration and metrics"):
            rules, chosen = completed_rules(
                description.rules, self.settings, train_targets, predictions.get("val")
            )
            summaries = measure_splits(
                predictions, rules, evaluation.threshold, (train_targets == 1).sum(axis=0), chosen
            )
        description = replace(description, rules=rules)
        save_description(self.run.model, description)
        write_evaluation(self.run, rules, summaries)
        measured = metrics_of(chosen, summaries)
        metrics = {
            "best": _describe_best(best, measured),
            "num_train_images": len(train_targets),
            **measured,
        }
        write_json(self.run.metrics_file, metrics)
        return metrics

    def complete_model(self) -> float:
        """Fit what depends on val and save the model with it, as far as training came; returns its val mAP.

        Test is not measured, and the run is not finished.
        """
        classifier, description = self._load()
        description, val = self._fit_on_val(classifier, description)
        train_targets = self.dataset.splits["train"].targets
        rules, _ = completed_rules(description.rules, self.settings, train_targets, val)
        save_description(self.run.model, replace(description, rules=rules))
        return mean_average_precision(val)

    def _load(self) -> tuple[Classifier, ModelDescription]:
        """The best model so far, as training saved it."""
        remove_unlisted_parts(self.run.model)
        num_frozen = self.settings.encoder.frozen_stages
        need_taps = any(part.uses_taps(num_frozen) for part in self.parts.values())
        classifier, description = load_model(self.run.model, self.module, taps=need_taps)
        return classifier.to(self.device), description

    def _fit_on_val(
        self, classifier: Classifier, description: ModelDescription
    ) -> tuple[ModelDescription, Predictions]:
        """Fit the post-hoc parts, save the model with them, and predict val; each split is read once."""
        if classifier.posthoc:  # fitted and saved before an interruption
            return description, self._predict_corrected(classifier)
        if not self.parts:
            return description, self._predict(classifier, "val").predictions
        parts = {name: part.to(self.device) for name, part in self.parts.items()}
        train = self._predict(classifier, "train", parts)
        val = self._predict(classifier, "val", parts)
        seed = self.settings.optimisation.seed
        steps = 2 * len(parts)
        with WorkProgress(self.console, f"fitting {', '.join(parts)}", steps, "steps") as progress:
            progress.start(steps)
            kept = fit_parts(
                parts, self.settings.posthoc, train, val, seed, progress.advance, self.data.unknown
            )
        classifier.posthoc.update(kept)
        fitted = tuple(FittedPart(name, part.sizes) for name, part in kept.items())
        description = replace(description, posthoc=fitted)
        save_model(self.run.model, classifier, description)
        return description, corrected(val, kept)

    def _predict_corrected(self, classifier: Classifier) -> Predictions:
        """Predictions of val by a model with fitted parts, to the bit as when they were fitted."""
        parts = {name: cast("PosthocPart", part) for name, part in classifier.posthoc.items()}
        classifier.posthoc.clear()
        val = self._predict(classifier, "val", parts)
        classifier.posthoc.update(parts)
        return corrected(val, parts)

    def _predict(
        self, classifier: Classifier, name: str, parts: Mapping[str, PosthocPart] | None = None
    ) -> Observed:
        """Predictions of a split, and what the parts observe of its images."""
        loader = self.data.eval_loader(name)
        split = self.dataset.splits[name]
        observations = Observations(parts or {})
        what = f"{name} for post-hoc parts" if parts else f"predictions of {name}"
        with WorkProgress(self.console, what, len(split)) as progress:
            progress.start(len(split))
            predictions = predict_split(
                classifier,
                self.dataset.labels,
                split,
                loader,
                from_rows=self.data.from_rows,
                on_progress=progress.advance,
                on_batch=observations.add if parts else None,
            )
        self.data.report_bad_images(name, loader)
        return Observed(predictions, observations)


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


def completed_rules(
    rules: LabelRules,
    settings: TrainingSettings,
    train_targets: npt.NDArray[np.int8],
    val: Predictions | None,
) -> tuple[LabelRules, ChosenOnVal]:
    """The label rules with what val says: thresholds, calibration, probability intervals."""
    evaluation = settings.evaluation
    chosen = choose_on_val(
        val,
        threshold=evaluation.threshold,
        criterion=evaluation.threshold_criterion,
        target=evaluation.threshold_target,
        wish=evaluation.guarantee_wish,
    )
    rules = chosen.complete(replace(rules, cooccurrence=find_cooccurring_labels(train_targets)))
    calibrator = chosen.temperatures_and_biases
    if calibrator is not None and val is not None:
        intervals = fit_probability_intervals(val, calibrator.temperatures, calibrator.biases)
        rules = replace(rules, probability_intervals=intervals.to_rows())
    return rules, chosen
