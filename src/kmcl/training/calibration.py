"""What follows from val: post-hoc parts, thresholds and calibration; and the same for a first model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from kmcl.data.cooccurrence import find_cooccurring_labels
from kmcl.durations import spell_duration
from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.probability_intervals import fit_probability_intervals
from kmcl.evaluation.ranking import mean_area_under_roc, mean_average_precision
from kmcl.evaluation.summary import ChosenOnVal, choose_on_val
from kmcl.features.views import Features
from kmcl.methods import find_method
from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier
from kmcl.models.folder import (
    DESCRIPTION_FILE,
    FittedPart,
    ModelDescription,
    load_model,
    remove_unlisted_parts,
    save_description,
    save_model,
)
from kmcl.models.prediction import predict_split
from kmcl.options import read_options
from kmcl.options.posthoc import PosthocOptions
from kmcl.posthoc import find_part
from kmcl.posthoc.frozen_gp import FrozenFeatureGP
from kmcl.posthoc.interface import PosthocPart
from kmcl.progress import WorkProgress
from kmcl.runs.settings import TrainingSettings
from kmcl.training.states import Prepared
from kmcl.training.unknown_labels import IGNORED, UnknownLabels


def prepare_parts(
    options: Sequence[PosthocOptions], encoder: Encoder, num_labels: int
) -> dict[str, PosthocPart]:
    """The parts, not yet fitted, built from the encoder as it is before training."""
    return {part.name: find_part(part.name)(encoder, num_labels, **part.arguments) for part in options}


@dataclass
class Observations:
    """Collects the uncorrected logits and the parts' observations of a split, in the split's order."""

    parts: Mapping[str, PosthocPart]
    _logits: list[Tensor] = field(default_factory=list)
    _seen: dict[str, list[Tensor]] = field(default_factory=dict)

    def add(self, encoded: EncoderFeatures, output: HeadOutput) -> None:
        """Collect the outputs of a batch."""
        self._logits.append(output.logits.float().cpu())
        for name, part in self.parts.items():
            self._seen.setdefault(name, []).append(part.observe(encoded, output).float().cpu())

    @property
    def logits(self) -> Tensor:
        return torch.cat(self._logits)

    def of(self, name: str) -> Tensor:
        return torch.cat(self._seen[name])


@dataclass(frozen=True)
class Observed:
    """A split's predictions without corrections, and the parts' observations of its images."""

    predictions: Predictions
    observations: Observations


def fit_parts(
    parts: Mapping[str, PosthocPart],
    options: Sequence[PosthocOptions],
    train: Observed,
    val: Observed,
    seed: int,
    on_step: Callable[[], object] = lambda: None,
    unknown: UnknownLabels = IGNORED,
) -> dict[str, PosthocPart]:
    """Fit each part on train and tune it on val, one after the other; returns those worth keeping.

    Parts that give the unfamiliarity come last, since they are given the corrected logits.

    on_step: called after each of the two steps of a part
    unknown: what is made of labels of train that are not annotated
    """
    score = auc_of_logits(val.predictions)
    logits = val.observations.logits.double()
    targets = unknown.for_fitting(torch.from_numpy(train.predictions.targets), train.observations.logits)
    kept = {}
    for chosen in sorted(options, key=lambda one: parts[one.name].gives_unfamiliarity):
        part = parts[chosen.name]
        part.fit(train.observations.of(chosen.name), targets, chosen, seed)
        on_step()
        logits = part.tune(val.observations.of(chosen.name), logits, score)
        on_step()
        if part.is_worth_keeping:
            kept[chosen.name] = part
    return kept


@torch.inference_mode()
def corrected(observed: Observed, parts: Mapping[str, PosthocPart]) -> Predictions:
    """The predictions with what the parts add: those of the classifier that holds them."""
    logits, unfamiliarity, summary = observed.observations.logits, None, None
    for name, part in parts.items():
        device = next(part.buffers()).device
        observations = observed.observations.of(name).to(device)
        if part.corrects_logits:
            logits = logits + part(observations).float().cpu()
        if part.gives_unfamiliarity:
            found = part.unfamiliarity(observations, logits.to(device))
            unfamiliarity = found.float().cpu().numpy()
        if part.summary_size:
            summary = part.feature_summary(observations).float().cpu().numpy()
    return replace(
        observed.predictions,
        scores=logits.sigmoid().numpy(),
        unfamiliarity=unfamiliarity,
        feature_summary=summary,
    )


def auc_of_logits(predictions: Predictions) -> Callable[[Tensor], float]:
    """A function from logits of these images to the mean area under their labels' ROC curves.

    What is chosen by it is kept by mAP on new images too, and more surely than what is chosen by mAP: the
    average precision of a label with few val images depends on the ranks of those few alone.
    """

    def score(logits: Tensor) -> float:
        return mean_area_under_roc(replace(predictions, scores=logits.sigmoid().float().numpy()))

    return score


@dataclass(frozen=True)
class Calibrated:
    """A run whose model predicts as it will be used.

    val:    its predictions; None without such a split
    chosen: on val
    """

    run: Prepared
    classifier: Classifier
    rules: LabelRules
    val: Predictions | None
    chosen: ChosenOnVal


def calibrate(run: Prepared) -> Calibrated:
    """Fit post-hoc parts and choose label rules with the best weights so far, and save the model with them.

    The model is that of the folder, so that it is the same after an interruption.
    """
    model = run.folder.model
    remove_unlisted_parts(model)
    need_taps = any(part.uses_taps(run.settings.encoder.frozen_stages) for part in run.parts.values())
    classifier, description = load_model(model, run.io.encoder, taps=need_taps)
    classifier, val = classifier.to(run.device), None
    if "val" in run.dataset.splits:
        description, val = _fit_on_val(run, classifier, description)
    elif run.parts:
        run.console.print(
            f"There is no val split to tune post-hoc parts on: the model has no {', '.join(run.parts)}."
        )
    train_targets = run.dataset.splits["train"].targets
    with run.console.status("thresholds and calibration"):
        rules, chosen = completed_rules(description.rules, run.settings, train_targets, val)
    save_description(model, replace(description, rules=rules))
    return Calibrated(run, classifier, rules, val, chosen)


def _fit_on_val(
    run: Prepared, classifier: Classifier, description: ModelDescription
) -> tuple[ModelDescription, Predictions]:
    """Fit the post-hoc parts, save the model with them, and predict val; each split is read once."""
    if classifier.posthoc:  # fitted and saved before an interruption
        return description, _predict_corrected(run, classifier)
    if not run.parts:
        return description, predict(run, classifier, "val").predictions
    parts = {name: part.to(run.device) for name, part in run.parts.items()}
    train = predict(run, classifier, "train", parts)
    val = predict(run, classifier, "val", parts)
    seed, steps = run.settings.optimisation.seed, 2 * len(parts)
    with WorkProgress(run.console, f"fitting {', '.join(parts)}", steps, "steps") as progress:
        progress.start(steps)
        kept = fit_parts(parts, run.settings.posthoc, train, val, seed, progress.advance, run.unknown)
    classifier.posthoc.update(kept)
    description = replace(
        description, posthoc=tuple(FittedPart(name, part.sizes) for name, part in kept.items())
    )
    save_model(run.folder.model, classifier, description)
    return description, corrected(val, kept)


def _predict_corrected(run: Prepared, classifier: Classifier) -> Predictions:
    """Predictions of val by a model with fitted parts, to the bit as when they were fitted."""
    parts = {name: cast("PosthocPart", part) for name, part in classifier.posthoc.items()}
    classifier.posthoc.clear()
    val = predict(run, classifier, "val", parts)
    classifier.posthoc.update(parts)
    return corrected(val, parts)


def predict(
    run: Prepared, classifier: Classifier, name: str, parts: Mapping[str, PosthocPart] | None = None
) -> Observed:
    """Predictions of a split, and what the parts observe of its images."""
    loader, split = run.data.eval_loader(name), run.dataset.splits[name]
    observations = Observations(parts or {})
    what = f"{name} for post-hoc parts" if parts else f"predictions of {name}"
    with WorkProgress(run.console, what, len(split)) as progress:
        progress.start(len(split))
        predictions = predict_split(
            classifier,
            run.dataset.labels,
            split,
            loader,
            from_rows=run.data.from_rows,
            on_progress=progress.advance,
            on_batch=observations.add if parts else None,
        )
    run.data.report_bad_images(name, loader)
    return Observed(predictions, observations)


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
    rules, calibrator = chosen.complete(rules), chosen.temperatures_and_biases
    if calibrator is not None and val is not None:
        intervals = fit_probability_intervals(val, calibrator.temperatures, calibrator.biases)
        rules = replace(rules, probability_intervals=intervals.to_rows())
    return replace(rules, cooccurrence=find_cooccurring_labels(train_targets)), chosen


TRAIN_IMAGES, LEAST_TRAIN_IMAGES, VAL_IMAGES = 640, 192, 320
METHOD, PART = "bce", FrozenFeatureGP.Options().name
"""Its head is a linear one of zeros, so that the part alone decides."""
ROWS = 64
FIRST_MODEL_SECONDS = 50.0
"""Of the run, until the features of the first model are computed; fitting and saving it takes a few more."""


@dataclass(frozen=True)
class FirstModel:
    """What the model was fitted on, and its mAP on some images of val."""

    num_train: int
    num_val: int
    val_map: float


def save_first_model(prepared: Prepared) -> FirstModel | None:
    """Fit the part on some training images, choose thresholds and calibration on some of val, and save it.

    Where features are cached and the run has something to choose first. The classifier is not changed.
    """
    folder, dataset, clock = prepared.folder, prepared.dataset, prepared.clock
    has_model = (folder.model / DESCRIPTION_FILE).is_file()
    if has_model or not (prepared.undecided and prepared.data.from_rows and "val" in dataset.splits):
        return None
    classifier, cache = prepared.classifier, prepared.data.cache
    train, val = dataset.splits["train"], dataset.splits["val"]
    val_rows, val_indices = cache.sample(val, "val", VAL_IMAGES)
    # Fewer training images are used where features are slow.
    seconds_left = FIRST_MODEL_SECONDS - (clock.elapsed if clock else 0.0)
    fitting = seconds_left / (cache.seconds_per_image or 1e-9)
    most = int(min(TRAIN_IMAGES, max(LEAST_TRAIN_IMAGES, fitting)))
    train_rows, train_indices = cache.sample(train, "train", most)
    encoder = copy.deepcopy(classifier.encoder).with_taps()  # a part of its own, whose mode may change
    options = read_options({"name": METHOD}).for_model()
    head = find_method(METHOD).build_head(encoder, len(dataset.labels), options)
    for parameter in head.parameters():
        parameter.detach().zero_()
    part = FrozenFeatureGP(encoder, len(dataset.labels))
    device = next(classifier.parameters()).device
    first = Classifier(encoder, head).to(device).eval()
    part.to(device)
    observed = _observe(first, part, train_rows, device)
    targets = prepared.unknown.for_fitting(torch.from_numpy(train.targets[train_indices]))
    part.fit_images(observed, targets.to(device))
    part.set_weight(1.0)
    first.posthoc[PART] = part
    logits = part(_observe(first, part, val_rows, device)).cpu()
    predictions = Predictions.of_split(dataset.labels, val, logits.sigmoid().numpy(), val_indices)
    rules, _ = completed_rules(prepared.description.rules, prepared.settings, train.targets, predictions)
    fitted = (FittedPart(PART, part.sizes),)
    save_model(
        folder.model, first, replace(prepared.description, method=options, rules=rules, posthoc=fitted)
    )
    found = FirstModel(len(train_indices), len(val_indices), mean_average_precision(predictions))
    after = "" if clock is None else f" after {spell_duration(clock.elapsed)}"
    prepared.say(
        f"first model{after}: val mAP {100 * found.val_map:.1f}, a Gaussian process on frozen "
        f"features of {found.num_train} images; usable now, and replaced by better ones"
    )
    return found


@torch.inference_mode()
def _observe(classifier: Classifier, part: FrozenFeatureGP, rows: Features, device: torch.device) -> Tensor:
    seen = []
    for batch in torch.split(torch.from_numpy(rows), ROWS):
        encoded = classifier.encode_rows(batch.to(device))
        if encoded.taps is None:
            raise RuntimeError("rows always come with taps")
        seen.append(part.statistics(encoded.taps))
    return torch.cat(seen)
