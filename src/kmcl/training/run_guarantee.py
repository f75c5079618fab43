"""A guarantee of a run: refused before training where val cannot support it, and given to a finished run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from kmcl.data import Dataset
from kmcl.errors import InputError
from kmcl.evaluation.by_rules import with_guarantee
from kmcl.evaluation.guarantees import refuse_small_val
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.thresholds import choose_thresholds
from kmcl.models.guarantee import GuaranteeWish
from kmcl.models.label_rules import LabelRules
from kmcl.training.run_folder import RunFolder


def refuse_impossible(wish: GuaranteeWish, dataset: Dataset) -> None:
    """Raise InputError where val is missing, or too small for any model."""
    split = dataset.splits.get("val")
    if split is None or not len(split):
        raise InputError(
            f"{wish} cannot be guaranteed: it needs a val split, and {dataset.name} has none; "
            "-o val_fraction=0.2 cuts one where the reader has that option"
        )
    targets_alone = Predictions(
        labels=dataset.labels,
        names=("",) * len(split),
        scores=np.zeros(split.targets.shape, dtype=np.float32),
        targets=split.targets,
        ignored=split.ignored,
        groups=None if split.groups is None else tuple(map(str, split.groups)),
    )
    refuse_small_val(targets_alone, wish)


def rules_for_wish(rules: LabelRules, wish: GuaranteeWish, source: Path) -> LabelRules:
    """The rules of a model with the guarantee, chosen on the val predictions of its run.

    source: where the model was loaded from; what is no run folder can have no other guarantee than its own
    """
    if rules.guarantee is not None and rules.guarantee.wish == wish:
        return rules
    run = RunFolder(source)
    file = run.predictions_file("val")
    if not file.is_file():
        own = "none" if rules.guarantee is None else str(rules.guarantee.wish)
        raise InputError(
            f"{source}: has no predictions of val to choose thresholds for {wish} on; give the folder of a "
            f"finished run, or train or export with --guarantee {wish}. Its own guarantee: {own}"
        )
    val = Predictions.load(file)
    if val.labels != rules.labels:
        raise InputError(f"{file}: its labels are not those of the model")
    if rules.guarantee is not None:
        rules = _without_guarantee(rules, val, run)
    return with_guarantee(rules, val, wish)


def _without_guarantee(rules: LabelRules, val: Predictions, run: RunFolder) -> LabelRules:
    """With the thresholds of a run without one, for labels that the new one is not given to."""
    evaluation = run.read_settings().evaluation
    chosen = choose_thresholds(
        val, evaluation.threshold_criterion, evaluation.threshold_target, evaluation.threshold
    )
    return replace(rules, thresholds=tuple(map(float, chosen.values)), guarantee=None)
