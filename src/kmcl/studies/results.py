"""The results of a study: each variant's metrics over seeds, differences to the reference, and tables."""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kmcl.durations import spell_duration
from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import RESAMPLES, PairedDifference, paired_difference
from kmcl.evaluation.figures import FIGURES, OF_LABELS, Figure
from kmcl.evaluation.json_values import JsonObject, to_json_object
from kmcl.evaluation.predictions import Predictions
from kmcl.storage.atomic import write_json, write_text
from kmcl.storage.locks import locked
from kmcl.studies.plan import FILE_NAME, Member, StudyPlan
from kmcl.studies.variants import OF_SIZES

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
    folder: of the study.
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
    folder: Path = Path()

    def to_json(self) -> JsonObject:
        return {name: value for name, value in to_json_object(self).items() if name != "folder"}

    def variant(self, name: str) -> VariantResult | None:
        return next((variant for variant in self.variants if variant.name == name), None)


class Measured(NamedTuple):
    """A finished member and its `metrics.json`."""

    member: Member
    metrics: Mapping[str, Any]


def measured(members: Sequence[Member]) -> list[Measured]:
    """Those of the members that are finished."""
    return [Measured(member, member.run.read_metrics()) for member in members if member.is_finished]


def collect(
    plan: StudyPlan,
    folder: Path,
    members: Sequence[Member],
    finished: Sequence[Measured],
    failures: Mapping[str, str],
) -> StudyResult:
    """Evaluate the finished members. Raises InputError if there are none."""
    if not finished:
        raise InputError(f"{folder}: no member of the study is finished")
    split = "test" if all(one.metrics.get("test") for one in finished) else "val"
    if not all(one.metrics.get(split) for one in finished):
        raise InputError(f"{folder}: the data have neither test nor val images to compare on")
    variants = []
    for variant in plan.variants:
        own = [one for one in finished if one.member.variant == variant.name]
        if own:
            other = plan.reference_of(variant)
            reference = [one for one in finished if one.member.variant == other]
            difference = None if variant.name == other else difference_between(own, reference, split)
            variants.append(_variant_result(variant.name, own, split, difference, variant.changes))
    shown = {variant.name for variant in variants}
    unfinished = {member.name for member in members} - {one.member.name for one in finished}
    missing = [m for m in members if m.name in unfinished and (m.variant in shown or m.name in failures)]
    any_evaluation = finished[0].metrics[split]["evaluation"]
    return StudyResult(
        kind=plan.kind,
        data=plan.data,
        split=split,
        num_images=any_evaluation["num_images"],
        threshold=any_evaluation["threshold"],
        reference=plan.reference,
        variants=tuple(variants),
        failures=dict(failures),
        num_missing=len(missing),
        folder=folder,
    )


class SeedDifference(NamedTuple):
    """seeds: that both sides have. seeds_ahead: with how many of them the first side's mAP is higher."""

    paired: PairedDifference
    seeds: tuple[int, ...]
    seeds_ahead: int


def difference_between(
    own: Sequence[Measured], reference: Sequence[Measured], split: str
) -> SeedDifference | None:
    """Over the seeds both have; the same resamples for every variant of a study."""
    others = {one.member.seed: one for one in reference}
    pairs = [(one, others[one.member.seed]) for one in own if one.member.seed in others]
    if not pairs:
        return None
    first, second = (
        [Predictions.load(one.member.run.predictions_file(split)) for one in side]
        for side in zip(*pairs, strict=True)
    )
    mean_ap = OF_LABELS[0]
    ahead = [mean_ap.of(mine.metrics[split]) > mean_ap.of(theirs.metrics[split]) for mine, theirs in pairs]
    seeds = tuple(one.member.seed for one, _ in pairs)
    return SeedDifference(paired_difference(first, second), seeds, sum(ahead))


def _variant_result(
    name: str,
    own: Sequence[Measured],
    split: str,
    difference: SeedDifference | None,
    changes: Mapping[str, Any],
) -> VariantResult:
    members, metrics = zip(*own, strict=True)
    values = {figure.title: _spread([figure.of(found[split]) for found in metrics]) for figure in FIGURES}
    values[VAL_MAP.title] = _spread([VAL_MAP.of(found) for found in metrics])
    costs = [json.loads(member.cost_file.read_text(encoding="utf-8")) for member in members]
    peaks = [cost["peak_memory_bytes"] for cost in costs if cost["peak_memory_bytes"] is not None]
    return VariantResult(
        name=name,
        method=members[0].settings.method.name,
        changes=dict(changes),
        seeds=tuple(member.seed for member in members),
        metrics=values,
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


# Tables

SHOWN = {
    "mAP": "mAP",
    "val mAP": "val mAP",
    "mean AUC": "mean AUC",
    "CF1": "CF1, own thresholds",
    "OF1": "OF1, own thresholds",
    "CF1 top 3": "CF1, top 3",
    "OF1 top 3": "OF1, top 3",
}
"""Columns of the first table, and the metrics they show; the second table has all."""

NOT_PERCENT = ("ranking loss",)


def write_tables(folder: Path, table: str, rows: str, values: JsonObject) -> None:
    """Write table.md, table.csv and results.json, each whole or not at all."""
    try:
        with locked(folder / "locks" / "results.lock"):
            write_text(folder / "table.md", table)
            write_text(folder / "table.csv", rows)
            write_json(folder / "results.json", {"description": FILE_NAME, **values})
    except OSError as error:
        raise InputError(f"{folder}: the results cannot be written: {error.strerror}") from error


def repeating(kind: str) -> str:
    """The command that repeats a study, in its folder."""
    return f"    kmcl {kind} --config {FILE_NAME} --output NEW"


def markdown(result: StudyResult, notes: Sequence[str] = ()) -> str:
    """Two tables, what they show and the command that repeats them."""
    parts = [repeating(result.kind), "\n".join(in_words(result)), _main_table(result)]
    if notes:
        parts.append("\n\n".join(notes))
    parts += ["All metrics:", _all_metrics(result)]
    return "\n\n".join(parts) + "\n"


def in_words(result: StudyResult) -> list[str]:
    """How the figures were measured, for a reader to judge them."""
    seeds = sorted({seed for variant in result.variants for seed in variant.seeds})
    spread = (
        f"mean ± standard deviation over seeds {', '.join(map(str, seeds))}"
        if len(seeds) > 1
        else f"seed {seeds[0]} alone"
    )
    measured = "measured once per training" if result.split == "test" else "which also chose the epochs"
    sentences = [
        f"{result.data}, {result.split}: {result.num_images:,} images, {measured}; {spread}. In percent.",
        "The epoch of each training is the best on val.",
        "CF1 and OF1 are at each label's own threshold, chosen on val;",
        f"the fixed threshold is {result.threshold:g}.",
    ]
    if any(variant.difference for variant in result.variants):
        same = " with as many images" if result.kind == OF_SIZES else ""
        sentences.append(
            f"Difference: mean mAP minus that of {result.reference}{same} over the seeds both have, with a "
            f"95 % interval of a paired bootstrap ({RESAMPLES:,} resamples of the images, the "
            "same for all trainings, mAP averaged over seeds in each; it covers the sampling of images, not "
            "the randomness of training), and with how many seeds it is above 0."
        )
    lines = textwrap.wrap(" ".join(sentences), 110)
    if result.num_missing:
        lines.append(f"**{result.num_missing} trainings are missing**, the means are over the others.")
    lines += [f"{name} failed: {why}." for name, why in result.failures.items()]
    return lines


def _main_table(result: StudyResult) -> str:
    with_difference = any(variant.difference for variant in result.variants)
    header = ["method", *SHOWN]
    if with_difference:
        same = " with as many images" if result.kind == OF_SIZES else ""
        header.insert(2, f"difference to {result.reference}{same}")
        header.insert(3, "seeds ahead")
    header += ["training", "peak memory", "parameters", "GMAC"]
    rows = []
    for variant in result.variants:
        row = [variant.name, *(spread_text(variant.metrics[name]) for name in SHOWN.values())]
        if with_difference:
            row.insert(2, difference_text(variant.difference))
            ahead = f"{variant.seeds_ahead} of {len(variant.shared_seeds)}" if variant.difference else ""
            row.insert(3, ahead)
        row += cost_cells(variant)
        rows.append(row)
    return pipe_table(header, rows)


def cost_cells(variant: VariantResult) -> list[str]:
    """Training time, peak memory, parameters and GMAC."""
    memory = variant.peak_memory_bytes
    return [
        spell_duration(variant.training_seconds.mean),
        "-" if math.isnan(memory) else f"{memory / 2**30:.2f} GB",
        f"{variant.parameters / 1e6:.2f} M",
        f"{variant.gmac:.3f}",
    ]


def _all_metrics(result: StudyResult) -> str:
    names = list(result.variants[0].metrics)
    rows = [
        [name, *(spread_text(variant.metrics[name], _scale(name)) for variant in result.variants)]
        for name in names
    ]
    rows.append(
        [
            "epochs chosen",
            *(" ".join(str(epoch + 1) for epoch in v.epochs_chosen) or "-" for v in result.variants),
        ]
    )
    return pipe_table(["metric", *(variant.name for variant in result.variants)], rows)


def _scale(metric: str) -> float:
    return 1 if metric in NOT_PERCENT else 100


def spread_text(spread: Spread, scale: float = 100) -> str:
    if math.isnan(spread.mean):
        return "-"
    digits = 2 if scale == 100 else 4
    mean = f"{scale * spread.mean:.{digits}f}"
    return mean if math.isnan(spread.deviation) else f"{mean} ± {scale * spread.deviation:.{digits}f}"


def difference_text(difference: PairedDifference | None) -> str:
    if difference is None:
        return ""
    found = difference.difference
    return f"{100 * found.estimate:+.2f} ({100 * found.low:+.2f} to {100 * found.high:+.2f})"


def as_csv(result: StudyResult) -> str:
    """One row per variant and seed: every metric as a fraction."""
    text = io.StringIO()
    names = list(result.variants[0].metrics)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["variant", "method", "seed", "split", *names, "training seconds", "parameters", "gmac"])
    for variant in result.variants:
        for place, seed in enumerate(variant.seeds):
            values = [variant.metrics[name].values[place] for name in names]
            seconds = variant.training_seconds.values[place]
            row = [variant.name, variant.method, seed, result.split]
            cells = ["" if math.isnan(value) else repr(value) for value in (*values, seconds)]
            writer.writerow([*row, *cells, variant.parameters, variant.gmac])
    return text.getvalue()


def pipe_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with a line for the header, one of dashes, and one for each row."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
