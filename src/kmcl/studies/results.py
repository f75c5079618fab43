"""The results of a study: each variant's metrics over seeds, and its difference to the reference."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import PairedDifference, paired_difference
from kmcl.evaluation.figures import FIGURES, OF_LABELS, Figure
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Predictions
from kmcl.studies.plan import Member, StudyPlan

VAL_MAP = Figure("val mAP", "best.val_map")


class Spread(NamedTuple):
    """Over seeds. deviation: of the sample, NaN for one seed."""

    mean: float
    deviation: float
    values: tuple[float, ...]


@dataclass(frozen=True)
class VariantResult:
    """metrics: of the measured split, by the titles of FIGURES; `val mAP` is that of the saved model.

    difference: to the reference over the seeds that both have; None for the reference itself.
    epochs_chosen: the best of each training on val, counted from 0.
    num_train_images: that it was trained on; None for runs of versions that did not record it.
    seeds_ahead: with how many of these seeds the variant's mAP is above the reference's.
    """

    name: str
    method: str
    changes: Mapping[str, Any]
    seeds: tuple[int, ...]
    metrics: Mapping[str, Spread]
    epochs_chosen: tuple[int, ...]
    training_seconds: Spread
    peak_memory_bytes: float
    parameters: int
    gmac: float
    difference: PairedDifference | None
    shared_seeds: tuple[int, ...]
    seeds_ahead: int
    num_train_images: int | None = None


@dataclass(frozen=True)
class StudyResult:
    """split: `test`, or `val` where the data have no test.

    failures: reasons, by member. num_missing: failures, and seeds that a variant with results does not have.
    """

    kind: str
    data: str
    split: str
    num_images: int
    threshold: float
    reference: str
    variants: tuple[VariantResult, ...]
    failures: Mapping[str, str]
    num_missing: int

    def to_json(self) -> JsonObject:
        return to_json_object(self)

    def variant(self, name: str) -> VariantResult | None:
        return next((variant for variant in self.variants if variant.name == name), None)


def collect(plan: StudyPlan, folder: Path, failures: Mapping[str, str] | None = None) -> StudyResult:
    """Evaluate the finished members. Raises InputError if there are none."""
    members = plan.members(folder)
    finished = [member for member in members if member.is_finished]
    if not finished:
        raise InputError(f"{folder}: no member of the study is finished")
    metrics = {member.name: member.run.read_metrics() for member in finished}
    split = "test" if all(found.get("test") for found in metrics.values()) else "val"
    if not all(found.get(split) for found in metrics.values()):
        raise InputError(f"{folder}: the data have neither test nor val images to compare on")
    variants = []
    for variant in plan.variants:
        own = [member for member in finished if member.variant == variant.name]
        if own:
            found = [metrics[member.name] for member in own]
            other = plan.reference_of(variant)
            reference = [member for member in finished if member.variant == other]
            difference = None if variant.name == other else difference_between(own, reference, split)
            variants.append(_variant_result(variant.name, own, found, split, difference, variant.changes))
    shown = {variant.name for variant in variants}
    unfinished = [
        member
        for member in members
        if not member.is_finished and (member.variant in shown or member.name in (failures or {}))
    ]
    any_evaluation = metrics[finished[0].name][split]["evaluation"]
    return StudyResult(
        kind=plan.kind,
        data=plan.settings.data.spec,
        split=split,
        num_images=any_evaluation["num_images"],
        threshold=any_evaluation["threshold"],
        reference=plan.reference,
        variants=tuple(variants),
        failures=dict(failures or {}),
        num_missing=len(unfinished),
    )


class SeedDifference(NamedTuple):
    """seeds: that both sides have. seeds_ahead: with how many of them the first side's mAP is higher."""

    paired: PairedDifference
    seeds: tuple[int, ...]
    seeds_ahead: int


def difference_between(
    own: Sequence[Member], reference: Sequence[Member], split: str
) -> SeedDifference | None:
    """Over the seeds both have; the same resamples for every variant of a study."""
    seeds = tuple(member.seed for member in own if member.seed in {other.seed for other in reference})
    if not seeds:
        return None
    first, second = (
        [Predictions.load(_of_seed(side, seed).run.predictions_file(split)) for seed in seeds]
        for side in (own, reference)
    )
    paired = paired_difference(first, second)
    values = [
        [OF_LABELS[0].of(_of_seed(side, seed).run.read_metrics()[split]) for side in (own, reference)]
        for seed in seeds
    ]
    return SeedDifference(paired, seeds, sum(mine > theirs for mine, theirs in values))


def _of_seed(members: Sequence[Member], seed: int) -> Member:
    return next(member for member in members if member.seed == seed)


def _variant_result(
    name: str,
    members: Sequence[Member],
    metrics: Sequence[Mapping[str, Any]],
    split: str,
    difference: SeedDifference | None,
    changes: Mapping[str, Any],
) -> VariantResult:
    measured = {figure.title: _spread([figure.of(found[split]) for found in metrics]) for figure in FIGURES}
    measured[VAL_MAP.title] = _spread([VAL_MAP.of(found) for found in metrics])
    costs = [json.loads(member.cost_file.read_text(encoding="utf-8")) for member in members]
    peaks = [cost["peak_memory_bytes"] for cost in costs if cost["peak_memory_bytes"] is not None]
    return VariantResult(
        name=name,
        method=members[0].settings.method.name,
        changes=dict(changes),
        seeds=tuple(member.seed for member in members),
        metrics=measured,
        epochs_chosen=tuple(found["best"]["epoch"] for found in metrics if found.get("best")),
        training_seconds=_spread([training_seconds(member) for member in members]),
        peak_memory_bytes=max(peaks, default=math.nan),
        parameters=costs[0]["parameters"],
        gmac=costs[0]["gmac"],
        difference=None if difference is None else difference.paired,
        shared_seeds=() if difference is None else difference.seeds,
        seeds_ahead=0 if difference is None else difference.seeds_ahead,
        num_train_images=metrics[0].get("num_train_images"),
    )


def training_seconds(member: Member) -> float:
    """Sum over epochs including validation; without reading the data and the final evaluation."""
    with member.run.epochs_file.open(encoding="utf-8", newline="") as file:
        return sum(float(row["seconds"]) for row in csv.DictReader(file))


def _spread(values: Sequence[float]) -> Spread:
    found = np.array(values, dtype=float)
    deviation = float(found.std(ddof=1)) if len(found) > 1 else math.nan
    return Spread(float(found.mean()), deviation, tuple(found.tolist()))
