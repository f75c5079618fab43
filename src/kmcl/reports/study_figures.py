"""Figures of studies: every training as a dot, differences with intervals, curves over the data's size."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.ticker import NullFormatter
from rich.console import Console

from kmcl.reports.blocks import Cell, Picture, Table
from kmcl.reports.drawing import (
    FULL_WIDTH,
    INK,
    dot_look,
    figure_style,
    legend_below,
    line_look,
    new_axes,
    new_figure,
    shorten,
)
from kmcl.reports.figure_files import write_picture
from kmcl.storage.locks import locked
from kmcl.studies.plan import StudyPlan
from kmcl.studies.results import StudyResult, VariantResult
from kmcl.studies.study import run_study
from kmcl.studies.variants import OF_SIZES, OF_WEIGHTS, TERMS, method_name
from kmcl.studies.weight_search import SearchPoint, WeightResult, WeightSearch

LONGEST_NAME = 18
"""Characters of a reference's name that fit below the differences."""


def run_drawn_study(
    plan: StudyPlan,
    folder: Path,
    *,
    jobs: int = 1,
    ray: str | None = None,
    console: Console | None = None,
) -> StudyResult | WeightResult:
    """`run_study`, or the search for weights, with the figure of the study beside its tables."""
    if plan.kind == OF_WEIGHTS:
        found = WeightSearch(plan).run(folder, jobs=jobs, ray=ray, console=console)
        if any(point.val_map is not None for point in found.points):
            _write_picture(weights_picture(found.points), folder)
        return found
    result = run_study(plan, folder, jobs=jobs, ray=ray, console=console)
    _write_picture(size_picture(result) if plan.kind == OF_SIZES else comparison_picture(result), folder)
    return result


def _write_picture(picture: Picture, folder: Path) -> None:
    """Into the folder of a study, which other processes may write to at the same time."""
    with locked(folder / "locks" / "results.lock"):
        write_picture(picture, folder)


def comparison_picture(result: StudyResult) -> Picture:
    """On the left mAP of each training and the means, on the right the differences to the reference."""
    variants = result.variants
    compared = [variant for variant in variants if variant.difference is not None]
    with figure_style():
        figure = new_figure(FULL_WIDTH, 1.7 + 0.36 * len(variants))
        left, right = (
            figure.subplots(1, 2, sharey=True, width_ratios=(3, 2))
            if compared
            else (figure.add_subplot(), None)
        )
        for place, variant in enumerate(variants):
            look = dot_look(1 if variant.difference is not None else 0)
            spread = variant.metrics["mAP"]
            values = [100 * value for value in spread.values]
            left.scatter(values, [place] * len(values), s=22, alpha=0.55, linewidths=0, **look)
            left.vlines(100 * spread.mean, place - 0.28, place + 0.28, color=look["color"], linewidth=2.5)
            if right is not None and variant.difference is not None:
                bar = variant.difference.difference
                right.hlines(place, 100 * bar.low, 100 * bar.high, color=look["color"], linewidth=2.5)
                right.plot(100 * bar.estimate, place, markersize=6, **look)
        left.set_yticks(range(len(variants)), shorten([variant.name for variant in variants], 34))
        left.set_ylim(len(variants) - 0.5, -0.5)
        left.set(xlabel=f"mAP on {result.split} (%)", title="Each training, and the mean")
        if right is not None:
            right.axvline(0, color=INK, linewidth=1, linestyle=":")
            other = result.reference if len(result.reference) <= LONGEST_NAME else "the reference (blue)"
            right.set(xlabel=f"mAP minus that of {other}", title="Difference, 95 % interval")
    rows: list[tuple[Cell, ...]] = []
    for variant in variants:
        found = None if variant.difference is None else variant.difference.difference
        cells = (None, None, None) if found is None else (found.estimate, found.low, found.high)
        spread = variant.metrics["mAP"]
        rows.append((variant.name, spread.mean, *cells, *spread.values))
    most = max(len(variant.seeds) for variant in variants)
    header = ("method", "mean", "difference", "low", "high", *(f"training {n + 1}" for n in range(most)))
    words = "; ".join(f"{variant.name} {100 * variant.metrics['mAP'].mean:.2f}" for variant in variants)
    return Picture(
        "comparison" if result.kind == "compare" else result.kind.removeprefix("study "),
        figure,
        alt=f"mAP on {result.split} of each method, one dot a seed. Means: {words}.",
        caption=f"mAP on {result.split}: {words}.",
        numbers=Table.of("mAP as fractions", header, rows),
    )


def size_picture(result: StudyResult) -> Picture:
    """mAP over the number of training images: a line through the means, a dot for each training.

    Over their percentage where a training did not record the number.
    """
    curves: dict[str, list[VariantResult]] = {}
    for variant in sorted(result.variants, key=lambda variant: variant.changes["train_fraction"]):
        curves.setdefault(method_name(variant.name, variant.changes), []).append(variant)
    in_images = all(variant.num_train_images is not None for variant in result.variants)
    with figure_style():
        figure, axes = new_axes(width=6.4, height=4.2)
        for place, (name, variants) in enumerate(curves.items()):
            parts = [_size(variant, in_images) for variant in variants]
            look = line_look(place)
            axes.plot(parts, [100 * variant.metrics["mAP"].mean for variant in variants], label=name, **look)
            values = [[100 * value for value in variant.metrics["mAP"].values] for variant in variants]
            axes.fill_between(
                parts, [min(v) for v in values], [max(v) for v in values], color=look["color"], alpha=0.15
            )
            for part, dots in zip(parts, values, strict=True):
                axes.scatter([part] * len(dots), dots, s=14, alpha=0.5, linewidths=0, color=look["color"])
        axes.set(
            xlabel="training images" if in_images else "training images (%)",
            ylabel=f"mAP on {result.split} (%)",
            title="Means, single trainings and their range",
        )
        axes.set_xlim(left=0)
        legend_below(axes)
    rows = [
        (
            name,
            variant.changes["train_fraction"],
            variant.num_train_images,
            spread.mean,
            min(spread.values),
            max(spread.values),
        )
        for name, variants in curves.items()
        for variant in variants
        for spread in [variant.metrics["mAP"]]
    ]
    words = "; ".join(
        f"{name} {100 * part:g} %{f' ({count:,} images)' if count else ''}: {100 * mean:.2f}"
        for name, part, count, mean, _, _ in rows
    )
    return Picture(
        "data-size",
        figure,
        alt=f"mAP on {result.split} over the training images. {words}.",
        caption=words,
        numbers=Table.of(
            "mAP as fractions", ("method", "fraction", "images", "mean", "lowest", "highest"), rows
        ),
    )


def _size(variant: VariantResult, in_images: bool) -> float:
    images = variant.num_train_images
    return float(images) if in_images and images is not None else 100 * variant.changes["train_fraction"]


def weights_picture(points: Sequence[SearchPoint]) -> Picture:
    """Val mAP of every point over each of the three weights."""
    done = [point for point in points if point.val_map is not None]
    best = max(done, key=lambda point: point.val_map or 0)
    with figure_style():
        figure = new_figure(FULL_WIDTH, 3.4)
        for place, axes in enumerate(figure.subplots(1, len(TERMS), sharey=True)):
            term = TERMS[place]
            axes.scatter(
                [point.weights[term] for point in done],
                [100 * (point.val_map or 0) for point in done],
                s=26,
                linewidths=0,
                **dot_look(1),
            )
            axes.scatter([best.weights[term]], [100 * (best.val_map or 0)], s=60, **dot_look(0))
            axes.set_xscale("log")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set(xlabel=f"weight of the {term} term", ylabel="" if place else "val mAP (%)")
        figure.suptitle(f"Val mAP of {len(done)} points; the best is blue", x=0.01, ha="left", size=10)
    rows = [(point.name, point.val_map, *(point.weights[term] for term in TERMS)) for point in done]
    chosen = ", ".join(f"{term} {best.weights[term]:.3g}" for term in TERMS)
    return Picture(
        "weights",
        figure,
        alt=f"Val mAP over each weight. Best: {100 * (best.val_map or 0):.2f} with {chosen}.",
        caption=f"Best: {chosen}.",
        numbers=Table.of("points", ("point", "val mAP", *TERMS), rows),
    )
