"""The section on saliency: for each image and run a row of heat maps, one per label."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from kmcl.evaluation.label_rules import DECIMALS
from kmcl.reports.blocks import Gallery, Missing, Picture, Section, Table, Text, Thumbnail
from kmcl.reports.drawing import figure_style, new_figure
from kmcl.reports.explained import (
    ExplainedImage,
    LabelHeat,
    NamedImage,
    disagreements,
    explain,
    overlay,
    random_images,
    read_images,
)
from kmcl.reports.run_parts import RunParts
from kmcl.reports.thumbnails import encode, short_name

Choice = Literal["random", "disagreement", "none"]

THUMBNAIL_SIDE = 176
CELL_INCHES = 1.35
LARGE_CELL_INCHES = 3.2
"""Room for EXPLAINED_SIDE pixels in the PNG file."""
GAP_INCHES, TITLE_INCHES = 0.1, 0.4
"""Between images side by side, and above each for a title of two lines."""


def saliency_section(
    runs: Sequence[RunParts],
    paths: Sequence[Path],
    choice: Choice,
    count: int,
    seed: int,
    wanted: Sequence[str] = (),
    full_size: bool | None = None,
) -> Section:
    """Explain the images named, or those chosen among the reported split's.

    full_size: show the images named large: at their original resolution or not; None: as thumbnails
    """
    section = Section("Saliency")
    usable = [run for run in runs if run.classifier is not None and run.description is not None]
    section.add(*(Missing(f"the model of {run.name} cannot be loaded.") for run in runs if run not in usable))
    usable = [run for run in usable if _labels(run) == _labels(usable[0])]
    if not usable:
        return section
    images, how = _choose(usable, paths, choice, count, seed, full_size)
    if not images:
        section.add(Missing("there is no image to explain: the dataset cannot be opened or has none."))
        return section
    section.add(
        Text(
            f"Grad-CAM of the predicted labels, {how}. Bright is where the evidence for a label lies, scaled "
            "to each picture's own highest value; a probability below its threshold is in parentheses."
        )
    )
    explained = explain(
        [run.classifier for run in usable if run.classifier is not None],
        [run.description.rules for run in usable if run.description is not None],
        images,
        wanted,
    )
    names = [run.name for run in usable]
    section.add(*(image_gallery(one, names) for one in explained))
    with figure_style():
        section.add(grid_picture(explained, names))
    section.add(Text("The same grid as one figure: saliency.svg and saliency.png."))
    header, rows = probability_rows(explained, names)
    section.add(Table.of("Probabilities of the explained labels", header, rows, open=False))
    return section


def image_gallery(one: ExplainedImage, runs: Sequence[str]) -> Gallery:
    image = one.image
    truth = "" if image.truth is None else f", has {', '.join(image.truth) or 'no label'}"
    side = THUMBNAIL_SIDE if image.shown is None else max(image.shown.shape[:2])
    original = Thumbnail(encode(image.picture, side), f"The image {image.name}{truth}", "image")
    rows = []
    for run, heats in zip(runs, one.of_runs, strict=True):
        thumbnails = [
            Thumbnail(
                encode(overlay(image.picture, heat.heat), side),
                f"Where {run} sees {heat.label} in {image.name}: {_place(heat)}",
                _caption(heat, image.truth),
            )
            for heat in heats
        ]
        rows.append((run if len(runs) > 1 else "", (original, *thumbnails)))
    return Gallery(short_name(image.name, 60) + truth, tuple(rows), large=image.shown is not None)


def grid_picture(explained: Sequence[ExplainedImage], runs: Sequence[str]) -> Picture:
    """The paper's grid: a row per image and run, the image first, then its labels."""
    columns = 1 + max(len(heats) for one in explained for heats in one.of_runs)
    num_rows = len(explained) * len(runs)
    cell = CELL_INCHES if all(one.image.shown is None for one in explained) else LARGE_CELL_INCHES
    figure, grid = _image_grid(num_rows, columns, cell)
    for axes in grid.flat:
        axes.set_axis_off()
    for index, one in enumerate(explained):
        for place, (run, heats) in enumerate(zip(runs, one.of_runs, strict=True)):
            row = grid[index * len(runs) + place]
            row[0].imshow(one.image.picture)
            title = run if len(runs) > 1 else short_name(one.image.name, 18)
            row[0].set_title(title, fontsize=7, loc="center")
            for axes, heat in zip(row[1:], heats, strict=False):
                axes.imshow(overlay(one.image.picture, heat.heat))
                axes.set_title(_caption(heat, one.image.truth), fontsize=7, loc="center", fontweight="normal")
    header, rows = probability_rows(explained, runs)
    return Picture(
        "saliency",
        figure,
        alt=f"Grad-CAM grid of {len(explained)} images for {', '.join(runs)}.",
        caption="",
        numbers=Table.of("probabilities", header, rows),
        shown=False,
    )


def _image_grid(num_rows: int, columns: int, cell: float) -> tuple[Figure, Any]:
    """A figure with axes of equal size at fixed places.

    All sizes are known, and matplotlib's layout of a hundred axes takes longer than the rest of their figure.
    """
    side, title = cell - GAP_INCHES, TITLE_INCHES
    width, height = cell * columns, (side + title) * num_rows
    figure = new_figure(width, height)
    figure.set_layout_engine("none")
    grid = figure.subplots(
        num_rows,
        columns,
        squeeze=False,
        gridspec_kw={
            "left": GAP_INCHES / 2 / width,
            "right": 1 - GAP_INCHES / 2 / width,
            "bottom": 0.0,
            "top": 1 - title / height,
            "wspace": GAP_INCHES / side,
            "hspace": title / side,
        },
    )
    return figure, grid


def probability_rows(
    explained: Sequence[ExplainedImage], runs: Sequence[str]
) -> tuple[tuple[str, ...], list[tuple[str | float, ...]]]:
    header = ("image", "run", "label", "probability", "threshold", "present", "has it", "hottest place")
    rows: list[tuple[str | float, ...]] = []
    for one in explained:
        for run, heats in zip(runs, one.of_runs, strict=True):
            for heat in heats:
                known = one.image.truth
                has = "unknown" if known is None else "yes" if heat.label in known else "no"
                # All the decimals that the decision was made with.
                numbers = f"{heat.probability:.{DECIMALS}f}", f"{heat.threshold:.{DECIMALS}f}"
                present = "yes" if heat.present else "no"
                rows.append((one.image.name, run, heat.label, *numbers, present, has, _place(heat)))
    return header, rows


def _choose(
    runs: Sequence[RunParts],
    paths: Sequence[Path],
    choice: Choice,
    count: int,
    seed: int,
    full_size: bool | None,
) -> tuple[list[NamedImage], str]:
    named = read_images(paths, full_size)
    if choice == "disagreement" and len(runs) > 1:
        more = disagreements(runs[0], runs[1], count)
        how = f"for the images on which {runs[0].name} and {runs[1].name} differ most"
    elif choice == "none":
        more, how = [], "for the images named"
    else:
        more = random_images(runs[0], count, seed)
        how = "for random images"
    return [*named, *more], how if not (named and more) else f"{how}, after the images named"


def _labels(run: RunParts) -> tuple[str, ...]:
    return () if run.description is None else run.description.labels


def _caption(heat: LabelHeat, truth: tuple[str, ...] | None) -> str:
    shown = f"{heat.probability:.2f}" if heat.present else f"({heat.probability:.2f})"
    right = "\n" if truth is None else "\nright" if (heat.label in truth) == heat.present else "\nwrong"
    return f"{heat.label} {shown}{right}{'' if heat.heat.any() else ', no evidence'}"


def _place(heat: LabelHeat) -> str:
    """Where the heat is highest, in words for people who cannot see it."""
    if heat.heat.max() <= 0:
        return "nowhere"
    height, width = heat.heat.shape
    row, column = np.unravel_index(int(heat.heat.argmax()), heat.heat.shape)
    vertical = ("top", "middle", "bottom")[min(2, int(3 * row / height))]
    horizontal = ("left", "centre", "right")[min(2, int(3 * column / width))]
    return f"{vertical} {horizontal}"
