"""The results of a study as files: Markdown to paste, CSV of every member's metrics, JSON of everything."""

from __future__ import annotations

import csv
import io
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path

from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import RESAMPLES, PairedDifference
from kmcl.storage.atomic import write_json, write_text
from kmcl.storage.locks import locked
from kmcl.studies.designs import OF_SIZES
from kmcl.studies.pipe_table import pipe_table
from kmcl.studies.progress import duration
from kmcl.studies.results import Spread, StudyResult, VariantResult

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


def write_tables(result: StudyResult, folder: Path, command: str, notes: Sequence[str] = ()) -> None:
    """Write table.md, table.csv and results.json, each whole or not at all."""
    try:
        with locked(folder / "locks" / "results.lock"):
            write_text(folder / "table.md", markdown(result, command, notes))
            write_text(folder / "table.csv", as_csv(result))
            write_json(folder / "results.json", {"command": command, **result.to_json()})
    except OSError as error:
        raise InputError(f"{folder}: the results cannot be written: {error.strerror}") from error


def markdown(result: StudyResult, command: str, notes: Sequence[str] = ()) -> str:
    """Two tables, what they show and the command that made them."""
    parts = [f"    {command}", "\n".join(in_words(result)), _main_table(result)]
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
        duration(variant.training_seconds.mean),
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
