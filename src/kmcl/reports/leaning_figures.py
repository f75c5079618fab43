"""Figures of labels that lean on others: with and without the co-occurring label, and with it covered."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from kmcl.evaluation.contrasts import Contrast
from kmcl.evaluation.leaning import LabelLeaning
from kmcl.reports.blocks import Gallery, Picture, Table, Thumbnail
from kmcl.reports.drawing import (
    COLOURS,
    FULL_WIDTH,
    GRID,
    INK,
    dot_look,
    legend_below,
    new_axes,
    new_figure,
    shorten,
)
from kmcl.reports.masked import MaskedLabel
from kmcl.reports.thumbnails import encode, short_name

PANELS = ("average precision", "recall", "false-positive rate")
FOUND_COLOUR = COLOURS[4]
THUMBNAIL_SIDE = 176


def leaning_picture(found: Sequence[LabelLeaning], labels: Sequence[str], split: str, ending: str) -> Picture:
    """Three panels with a row per label: images with the co-occurring label and without it."""
    order = sorted(found, key=lambda each: _gap(each.false_positives))
    figure = new_figure(FULL_WIDTH, 1.5 + 0.24 * max(len(found), 6))
    grid = figure.subplots(1, len(PANELS), sharey=True)
    rows: list[tuple[str | float | None, ...]] = []
    num_found = 0
    for panel, axes in enumerate(grid):
        for place, each in enumerate(order):
            contrast = (each.average_precision, each.recall, each.false_positives)[panel]
            num_found += _draw_contrast(axes, contrast, place)
            difference = contrast.difference
            limits = (None, None) if difference is None else (100 * difference.low, 100 * difference.high)
            values = (100 * contrast.first, 100 * contrast.second)
            counts = (contrast.num_first, contrast.num_second)
            names = (labels[each.pair.label], labels[each.pair.other])
            rows.append((*names, PANELS[panel], *values, *limits, *counts))
        axes.set(title=PANELS[panel].capitalize(), xlabel="%")
    pairs = [f"{labels[each.pair.label]} (with {labels[each.pair.other]})" for each in order]
    grid[0].set_yticks(range(len(order)), shorten(pairs, 38), fontsize=7.5)
    grid[0].set_ylim(-0.7, len(order) - 0.3)
    legend_below(grid[0], columns=2)
    return Picture(
        f"leaning{ending}",
        figure,
        alt=f"Average precision, recall and false-positive rate of {len(found)} labels in images of {split} "
        f"with and without the co-occurring label; {num_found} differences are more than chance.",
        caption=f"Images of {split} with the co-occurring label, and without it. Thick lines are differences "
        f"whose interval excludes 0 ({num_found}).",
        numbers=Table.of(
            "with and without the co-occurring label",
            ("label", "usually with", "figure", "with", "without", "low", "high", "images with", "without"),
            rows,
        ),
        wide=True,
    )


def masked_picture(masked: Sequence[MaskedLabel], labels: Sequence[str], split: str, ending: str) -> Picture:
    """Fall of each label's probability with its interval, beyond that of the control."""
    figure, axes = new_axes(FULL_WIDTH / 2, 1.6 + 0.34 * max(len(masked), 3))
    rows = []
    for place, each in enumerate(reversed(masked)):
        difference = each.difference
        if difference is not None:
            colour = FOUND_COLOUR if difference.excludes_zero else COLOURS[0]
            axes.hlines(place, difference.low, difference.high, color=colour, linewidth=2.2)
            axes.plot(difference.estimate, place, marker="o", color=colour, markersize=6)
            numbers = (difference.estimate, difference.low, difference.high)
            names = (labels[each.pair.label], labels[each.pair.other])
            rows.append((*names, each.num_images, each.fall, each.control_fall, *numbers, each.other_fall))
    axes.axvline(0, color=INK, linewidth=1, linestyle=":")
    names_shown = [f"{labels[each.pair.label]} ({labels[each.pair.other]} covered)" for each in masked[::-1]]
    axes.set_yticks(range(len(masked)), shorten(names_shown, 36), fontsize=7.5)
    axes.set_ylim(-0.6, len(masked) - 0.4)
    axes.set(xlabel="fall of the label's probability, minus control", title="Co-occurring label covered")
    first, most = labels[masked[0].pair.label], masked[0].fall - masked[0].control_fall
    return Picture(
        f"leaning-masked{ending}",
        figure,
        alt=f"Fall of the probability of {len(masked)} labels when the co-occurring label is covered, minus "
        f"the fall when another region is. Most: {first}, {most:+.2f}.",
        caption=f"{sum(each.num_images for each in masked)} images of {split} with both labels, at most "
        f"{max(each.num_images for each in masked)} for each label. A quarter of the image is covered where "
        "it most supports the other label; the part that supports the label itself more stays. Control: "
        "a random region of the same size. Intervals 95 % jointly, paired by image. Two labels that are read "
        "from the same place both fall.",
        numbers=Table.of(
            "falls",
            (
                *("label", "covered", "images", "fall", "control", "difference", "low", "high"),
                "fall of the covered label",
            ),
            rows[::-1],
        ),
    )


def masked_gallery(masked: Sequence[MaskedLabel], labels: Sequence[str]) -> Gallery:
    """For each label the image with the middle fall: as it is, covered, and its control."""
    rows = []
    for each in masked:
        label, other = labels[each.pair.label], labels[each.pair.other]
        name, images, probabilities = each.example
        kinds = ("as it is", f"{other} covered", "another region covered")
        thumbnails = tuple(
            Thumbnail(
                encode(image, THUMBNAIL_SIDE),
                f"{name}, {kind}: probability {probability:.2f} of {label}",
                f"{kind}\n{label} {probability:.2f}",
            )
            for image, kind, probability in zip(images, kinds, probabilities, strict=True)
        )
        rows.append((f"{label}: {short_name(name)}", thumbnails))
    return Gallery("Covered images, for each label the one with the middle fall", tuple(rows), open=False)


def _gap(contrast: Contrast) -> float:
    gap = contrast.first - contrast.second
    return gap if gap == gap else -1.0


def _draw_contrast(axes: Axes, contrast: Contrast, place: int) -> bool:
    """One row of a panel; returns whether the difference is a finding."""
    first, second = 100 * contrast.first, 100 * contrast.second
    is_found = contrast.difference is not None and contrast.difference.excludes_zero
    colour, width = (FOUND_COLOUR, 2.6) if is_found else (GRID, 1.0)
    axes.hlines(place, min(first, second), max(first, second), color=colour, linewidth=width)
    is_first = place == 0
    axes.plot(second, place, linestyle="", label="without it" if is_first else None, **dot_look(1))
    axes.plot(
        first, place, linestyle="", label="with the co-occurring label" if is_first else None, **dot_look(0)
    )
    return is_found
