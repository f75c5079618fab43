"""Figures of a study: every training as a dot, differences to the reference with intervals."""

from __future__ import annotations

from kmcl.reports.blocks import Cell, Picture, Table
from kmcl.reports.drawing import FULL_WIDTH, INK, dot_look, figure_style, new_figure, shorten
from kmcl.studies.results import StudyResult


def comparison_picture(result: StudyResult, name: str = "comparison") -> Picture:
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
            look = dot_look(0 if variant.name == result.reference else 1)
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
            right.set(xlabel=f"mAP minus that of {result.reference}", title="Difference, 95 % interval")
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
        name,
        figure,
        alt=f"mAP on {result.split} of each method, one dot a seed. Means: {words}.",
        caption=f"mAP on {result.split}: {words}.",
        numbers=Table.of("mAP as fractions", header, rows),
    )
