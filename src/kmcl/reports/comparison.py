"""The section that compares several runs with the first: paired differences with intervals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.bootstrap import RESAMPLES, PairedDifference, paired_difference
from kmcl.reports.blocks import Missing, Picture, Section, Table, Text, percent
from kmcl.reports.drawing import (
    FULL_WIDTH,
    HALF_WIDTH,
    INK,
    dot_look,
    figure_style,
    legend_below,
    new_axes,
    shorten,
)
from kmcl.reports.measured import Measured


def comparison_section(measured: Sequence[Measured]) -> Section:
    """Every run minus the first, on the same resampled images."""
    section = Section("Comparison")
    first = measured[0]
    differences: list[tuple[Measured, PairedDifference]] = []
    for other in measured[1:]:
        try:
            found = paired_difference([other.predictions], [first.predictions])
            differences.append((other, found))
        except InputError as error:
            section.add(Missing(f"{other.name} cannot be compared with {first.name}: {error}."))
    if not differences:
        return section
    section.add(Text(" ".join(_in_words(first, other, found) for other, found in differences)))
    rows = [
        (
            f"{other.name} – {first.name}",
            percent(other.evaluation.mean_average_precision, 2),
            percent(first.evaluation.mean_average_precision, 2),
            f"{100 * found.difference.estimate:+.2f}",
            f"{100 * found.difference.low:+.2f} to {100 * found.difference.high:+.2f}",
            f"{found.p_value:.3g}",
        )
        for other, found in differences
    ]
    header = ("difference", "mAP %", "mAP % of the first", "points", "95 % interval", "p")
    section.add(Table.of(f"Paired differences in mAP, {RESAMPLES} resamples of the images", header, rows))
    with figure_style():
        section.add(difference_picture(first, differences))
        section.add(label_difference_picture(first, [other for other, _ in differences]))
    return section


def difference_picture(first: Measured, differences: Sequence[tuple[Measured, PairedDifference]]) -> Picture:
    """Intervals of the differences; those that exclude 0 are more than sampling noise of the images."""
    figure, axes = new_axes(height=1.5 + 0.4 * len(differences))
    rows = []
    for place, (other, found) in enumerate(differences):
        interval = found.difference
        low, middle, high = (100 * value for value in (interval.low, interval.estimate, interval.high))
        look = dot_look(place + 1)
        axes.hlines(place, low, high, color=look["color"], linewidth=2.5)
        axes.plot(middle, place, markersize=7, **look)
        rows.append((other.name, middle, low, high, found.p_value))
    axes.axvline(0, color=INK, linewidth=1, linestyle=":")
    names = shorten([other.name for other, _ in differences])
    axes.set_yticks(range(len(differences)), names)
    axes.set_ylim(len(differences) - 0.5, -0.5)
    axes.set(xlabel=f"mAP minus that of {first.name} (points)", title="Difference in mAP")
    words = "; ".join(
        f"{name}: {middle:+.2f} ({low:+.2f} to {high:+.2f})" for name, middle, low, high, _ in rows
    )
    return Picture(
        "map-difference",
        figure,
        alt=f"Difference in mAP to {first.name} with 95 % intervals. {words}.",
        caption=f"Paired bootstrap over the images, 95 % intervals. {words}.",
        numbers=Table.of("differences", ("run", "difference", "low", "high", "p"), rows),
    )


def label_difference_picture(first: Measured, others: Sequence[Measured]) -> Picture:
    """Which labels gain and which lose."""
    labels = first.predictions.labels
    base = np.array([label.average_precision for label in first.evaluation.labels])
    gains = np.array(
        [[label.average_precision for label in other.evaluation.labels] - base for other in others]
    )
    order = np.argsort(np.nan_to_num(gains[0]), kind="stable")
    wide = len(labels) > 30
    figure, axes = new_axes(
        FULL_WIDTH if wide else HALF_WIDTH, 1.4 + (0.15 if wide else 0.2) * max(len(labels), 8)
    )
    for index, other in enumerate(others, start=1):
        values = 100 * gains[index - 1, order]
        axes.scatter(values, np.arange(len(labels)), s=26, label=other.name, **dot_look(index))
    axes.axvline(0, color=INK, linewidth=1, linestyle=":")
    names = shorten(labels)
    axes.set_yticks(range(len(labels)), [names[label] for label in order], fontsize=7.5)
    axes.set_ylim(-0.6, len(labels) - 0.4)
    axes.set(xlabel=f"AP minus that of {first.name} (points)", title="Difference per label")
    legend_below(axes, columns=2)
    rows = [(labels[label], *(100 * float(gain[label]) for gain in gains)) for label in order[::-1]]
    return Picture(
        "label-difference",
        figure,
        alt=f"Average precision of each label minus that of {first.name}; for {others[0].name} from "
        f"{labels[order[0]]} {100 * gains[0, order[0]]:+.1f} to {labels[order[-1]]} "
        f"{100 * gains[0, order[-1]]:+.1f} points.",
        caption="Right of the line a label is ranked better than by the first run.",
        numbers=Table.of("points", ("label", *(other.name for other in others)), rows),
        wide=wide,
    )


def _in_words(first: Measured, other: Measured, found: PairedDifference) -> str:
    interval = found.difference
    if interval.low > 0:
        verdict = "better"
    elif interval.high < 0:
        verdict = "worse"
    else:
        verdict = "not clearly different"
    return (
        f"{other.name} is {verdict} ({100 * interval.estimate:+.2f} points of mAP, 95 % interval "
        f"{100 * interval.low:+.2f} to {100 * interval.high:+.2f}) compared with {first.name}. The interval "
        "covers the sampling of images, not the randomness of training."
    )
