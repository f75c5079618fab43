"""Fitting post-hoc parts: their observations of the training and val images, and their weights from val."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_area_under_roc
from kmcl.methods.output import HeadOutput
from kmcl.options.posthoc import PosthocOptions
from kmcl.posthoc import find_part
from kmcl.posthoc.interface import PosthocPart
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
