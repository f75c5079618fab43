"""A new label for a trained model, from a few images that show it, without training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from rich.console import Console
from torch import Tensor

from kmcl.data.dataset import Split
from kmcl.data.loading import LoaderSettings, make_eval_loader
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.ranking import Values
from kmcl.evaluation.unlabelled import LARGEST_SHARE, USUAL_SHARE, UnlabelledCalibration, calibrate_unlabelled
from kmcl.models.classifier import Classifier
from kmcl.models.folder import ModelDescription
from kmcl.posthoc.added_labels import AddedLabels, AddedSizes, ImageMemory, find_memory
from kmcl.posthoc.interface import PosthocPart
from kmcl.posthoc.kernel_vote import KernelVote
from kmcl.posthoc.label_examples import FittedLabel, fit_label
from kmcl.progress import WorkProgress

LEAST_EXAMPLES = 2
CONFIDENT = 1.6449
"""Deviations to either side of a 90 % interval."""


@dataclass(frozen=True)
class AddedLabel:
    """What is known of a label that was added.

    ranked_above: the share of remembered images that an example scores above which was left out, mean over
                  the examples
    low, high:    its 90 % interval (Wilson's, each example counting once)
    share:        of the remembered images, those that seem to show it
    threshold:    the probability from which it counts as present
    unreadable:   why images could not be read
    """

    name: str
    num_examples: int
    num_absent: int
    ranked_above: float
    low: float
    high: float
    share: float
    threshold: float
    unreadable: tuple[str, ...]

    def in_words(self) -> str:
        """How sure the label is, for people."""
        absent = f" and {self.num_absent} without it" if self.num_absent else ""
        words = (
            f"{self.name}, from {self.num_examples} examples{absent}: an example that is left out scores "
            f"above {100 * self.ranked_above:.0f} % of the remembered training images (90 % interval "
            f"{100 * self.low:.0f} to {100 * self.high:.0f} %). About {100 * self.share:.2g} % of these seem "
            f"to show it; it counts as present from a probability of {self.threshold:.2g}."
        )
        if self.low <= 0.5:
            words += (
                " That is not clearly more than half, as for images taken at random: the model may not see "
                "what the examples have in common. Give more of them, or larger pictures of it."
            )
        if self.num_examples < 20:
            words += (
                f" Threshold and probabilities rest on {self.num_examples} images: check them on images of "
                "your own before you rely on them."
            )
        return words


def add_label(
    classifier: Classifier,
    description: ModelDescription,
    name: str,
    given: Split,
    share: float | None = None,
    console: Console | None = None,
) -> tuple[Classifier, ModelDescription, AddedLabel]:
    """The model with one more label, its last; the given model is not changed.

    given: images whose one target is 1 where they show the label, 0 where they are known not to
    share: of images like those of training, those that show it; estimated if not given
    """
    part_name = check_addition(classifier, description, name)
    device = next(classifier.parameters()).device
    directions, rows, unreadable = _directions(classifier, part_name, given, console or Console(quiet=True))
    shows = given.targets[rows, 0] == 1
    if shows.sum() < LEAST_EXAMPLES:
        why = f"; {unreadable[0]}" if unreadable else ""
        raise InputError(
            f"a new label needs at least {LEAST_EXAMPLES} images that show it; {name!r} has {shows.sum()} "
            f"that can be read{why}"
        )
    memory = cast("ImageMemory", classifier.posthoc[part_name])
    fitted = fit_label(memory.directions.float(), directions, torch.from_numpy(shows).to(device))
    examples, others = (_values(scores) for scores in (fitted.of_examples, fitted.of_others))
    calibration = calibrate_unlabelled(examples, others, share, usual_share(classifier))
    added = _extended(classifier.added, part_name, memory, fitted, calibration)
    rules = _rules_with(description.rules, name, calibration, int(shows.sum()))
    parts = cast("dict[str, PosthocPart]", dict(classifier.posthoc.items()))
    model = Classifier(classifier.encoder, classifier.head, parts, added)
    ranked = float((examples[:, None] > others[None]).mean())
    low, high = _wilson(ranked, len(examples))
    return (
        model.to(device).eval(),
        replace(description, rules=rules, added=added.sizes),
        AddedLabel(
            name=name,
            num_examples=int(shows.sum()),
            num_absent=int((~shows).sum()),
            ranked_above=ranked,
            low=low,
            high=high,
            share=calibration.share,
            threshold=calibration.threshold,
            unreadable=unreadable,
        ),
    )


def check_addition(classifier: Classifier, description: ModelDescription, name: str) -> str:
    """The part to add the label with; InputError where the model cannot have it."""
    if not name.strip() or name != name.strip():
        raise InputError(f"name must be a name without spaces around it; got {name!r}")
    if name in description.labels:
        raise InputError(f"name {name!r} is a label of the model already")
    same = [label for label in description.labels if label.casefold() == name.casefold()]
    if same:
        raise InputError(f"name {name!r} differs from the label {same[0]!r} in capitals only")
    part = find_memory(dict(classifier.posthoc.items()))
    if classifier.added is not None:
        return classifier.added.source
    if part is None:
        held = ", ".join(classifier.posthoc) or "none"
        raise InputError(
            "a label is added to a model that remembers its training images, and this one does not (its "
            f"post-hoc parts: {held}); train it with --posthoc frozen_gp, which needs frozen stages "
            "(--recipe cached), or with --posthoc kernel_vote"
        )
    return part


def usual_share(classifier: Classifier) -> float:
    """The geometric mean of the shares of training images that have each label, where the model has them."""
    votes = [part for part in classifier.posthoc.values() if isinstance(part, KernelVote)]
    if not votes or not (rates := votes[0].rates[votes[0].rates > 0].double()).numel():
        return USUAL_SHARE
    return min(math.exp(float(rates.log().mean())), LARGEST_SHARE)


@torch.inference_mode()
def _directions(
    classifier: Classifier, part_name: str, given: Split, console: Console
) -> tuple[Tensor, Sequence[int], tuple[str, ...]]:
    """The unit vectors of the images that can be read, their rows, and why others cannot."""
    part = cast("PosthocPart", classifier.posthoc[part_name])
    loading = LoaderSettings(
        image_size=classifier.encoder.input_size, augmentation="none", skip_bad_images=True
    )
    loader = make_eval_loader(given, loading)
    device = next(classifier.parameters()).device
    seen, rows = [], []
    with WorkProgress(console, "examples", len(given)) as progress:
        progress.start(len(given))
        for batch in loader:
            encoded = classifier.encode(batch.images.to(device))
            observations = part.observe(encoded, classifier.head(encoded)).float()
            seen.append(cast("ImageMemory", part).directions_of(observations))
            rows.extend(batch.indices.tolist())
            progress.advance(len(batch.indices))
    memory = cast("ImageMemory", part)
    width = memory.directions.shape[1]
    directions = torch.cat(seen) if seen else torch.zeros(0, width, device=device)
    return directions, rows, tuple(loader.bad_images.values())


def _extended(
    former: AddedLabels | None,
    source: str,
    memory: ImageMemory,
    fitted: FittedLabel,
    calibration: UnlabelledCalibration,
) -> AddedLabels:
    """Former labels and the new one."""
    place = 0 if former is None else former.sizes.num_labels
    added = AddedLabels(AddedSizes(source, place + 1), cast("Any", memory)).to(fitted.weights)
    if former is not None:
        for name, buffer in former.named_buffers():
            getattr(added, name)[..., :place] = buffer
    added.weights[:, place] = calibration.slope * fitted.weights
    added.biases[place], added.sigma[place] = calibration.bias, fitted.sigma
    return added


def _rules_with(
    rules: LabelRules, name: str, calibration: UnlabelledCalibration, num_examples: int
) -> LabelRules:
    guarantee = rules.guarantee
    if guarantee is not None:  # the share of an image's labels that are found is not that of more labels
        not_given = (*guarantee.not_given, name)
        guarantee = None if guarantee.kind == "found" else replace(guarantee, not_given=not_given)
    (slope, _), (both, bias) = calibration.covariance.tolist()
    row = tuple(float(f"{value:.6g}") for value in (slope, both, bias, 0.0, 0.0, 0.0, 0.0, 1.0))
    intervals, together, support = rules.probability_intervals, rules.cooccurrence, rules.threshold_support
    return replace(
        rules,
        labels=(*rules.labels, name),
        thresholds=(*rules.score_thresholds.tolist(), calibration.threshold),
        temperatures=(*rules.temperature_values.tolist(), 1.0),
        biases=(*rules.bias_values.tolist(), 0.0),
        probability_intervals=None if intervals is None else (*intervals, row),
        cooccurrence=None if together is None else (*together, ()),
        threshold_support=None if support is None else (*support, num_examples),
        guarantee=guarantee,
        parents=None if rules.parents is None else (*rules.parents, ()),
    )


def _values(scores: Tensor) -> Values:
    values: Values = scores.double().cpu().numpy()
    return values


def _wilson(rate: float, number: int) -> tuple[float, float]:
    """The 90 % interval of a rate that was measured on so many."""
    weight = CONFIDENT**2 / number
    centre = (rate + weight / 2) / (1 + weight)
    half = CONFIDENT / (1 + weight) * math.sqrt(rate * (1 - rate) / number + weight / (4 * number))
    return max(0.0, centre - half), min(1.0, centre + half)
