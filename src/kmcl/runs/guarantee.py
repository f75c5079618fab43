"""A guarantee of a run: refused before training where val cannot support it, and given to a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from kmcl.data import Dataset
from kmcl.errors import InputError
from kmcl.evaluation.abstention import choose_cutoff
from kmcl.evaluation.by_rules import with_guarantee
from kmcl.evaluation.guarantee import GuaranteeWish
from kmcl.evaluation.guarantees import refuse_small_val
from kmcl.evaluation.label_rules import LabelRules
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.thresholds import choose_thresholds
from kmcl.runs.folder import RunFolder


def refuse_impossible(wish: GuaranteeWish, dataset: Dataset) -> None:
    """Raise InputError where val is missing, or too small for any model."""
    if dataset.parents and wish.kind == "precision":
        raise InputError(
            f"{wish} cannot be guaranteed where labels have parents: a label is predicted with each of its "
            "children, however precise its own threshold is"
        )
    split = dataset.splits.get("val")
    if split is None or not len(split):
        raise InputError(
            f"{wish} cannot be guaranteed: it needs a val split, and {dataset.name} has none; "
            "-o val_fraction=0.2 cuts one where the reader has that option"
        )
    no_scores = np.zeros(split.targets.shape, dtype=np.float32)
    refuse_small_val(Predictions.of_split(dataset.labels, split, no_scores), wish)


def rules_for_wish(rules: LabelRules, wish: GuaranteeWish, source: Path) -> LabelRules:
    """The rules of a model with the guarantee, chosen on the val predictions of its run.

    source: where the model was loaded from; what is no run folder can have no other guarantee than its own
    """
    if rules.guarantee is not None and rules.guarantee.wish == wish:
        return rules
    if rules.parents is not None and wish.kind == "precision":
        raise InputError(f"{source}: {wish} cannot be guaranteed where labels have parents")
    own = "none" if rules.guarantee is None else str(rules.guarantee.wish)
    val = val_predictions(
        rules,
        source,
        f"thresholds for {wish} on; give the folder of a finished run, or train or export with "
        f"--guarantee {wish}. Its own guarantee: {own}",
    )
    if rules.guarantee is not None:
        rules = _without_guarantee(rules, val, RunFolder(source))
    return with_guarantee(rules, val, wish)


def cutoff_of_run(rules: LabelRules, share: float, source: Path) -> float:
    """The probability of an error above which that share of decisions lies; see `kmcl.evaluation.abstention`.

    source: where the model was loaded from, which must be a run folder
    """
    what = "the decisions to abstain from on; give the folder of a finished run"
    return choose_cutoff(rules, val_predictions(rules, source, what), share)


def val_predictions(rules: LabelRules, source: Path, what: str) -> Predictions:
    """The val predictions of a run; InputError that says `what` was to be chosen where there are none."""
    file = RunFolder(source).predictions_file("val")
    if not file.is_file():
        raise InputError(f"{source}: has no predictions of val to choose {what}")
    val = Predictions.load(file)
    if val.labels != rules.labels:
        raise InputError(f"{file}: its labels are not those of the model")
    return val


def _without_guarantee(rules: LabelRules, val: Predictions, run: RunFolder) -> LabelRules:
    """With the thresholds of a run without one, for labels that the new one is not given to."""
    evaluation = run.read_settings().evaluation
    chosen = choose_thresholds(
        val, evaluation.threshold_criterion, evaluation.threshold_target, evaluation.threshold
    )
    return replace(rules, thresholds=tuple(map(float, chosen.values)), guarantee=None)
