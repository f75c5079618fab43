"""A figure of what a run predicts for a few images: saliency and probabilities with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from kmcl.data.augmentation import resize
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, logit
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.probability_intervals import ProbabilityIntervals
from kmcl.explain.saliency import enlarge, label_heat
from kmcl.models.classifier import Classifier
from kmcl.reports.blocks import Picture, Table
from kmcl.reports.drawing import COLOURS, INK, figure_style, new_figure, shorten
from kmcl.reports.explained import NamedImage, overlay, random_images
from kmcl.reports.run_parts import RunParts
from kmcl.reports.thumbnails import short_name

SHOWN_LABELS = 5
SHOWN_HEATS = 2
ACROSS = 2
CARD = (6.6, 2.1)  # inches
HAS, LACKS = COLOURS[0], COLOURS[4]


@dataclass(frozen=True)
class LabelInterval:
    """A label of an image on the scale of calibrated probabilities; low to high is the 90 % interval."""

    label: int
    name: str
    probability: float
    low: float
    high: float
    threshold: float
    is_predicted: bool
    is_there: bool


def predictions_picture(run: Path, num_images: int = 6, seed: int = 0) -> Picture:
    """Random test images of a run: each with the heat of its likeliest labels and the labels' intervals.

    Raises InputError where the run has no model, no predictions or no images any more.
    """
    parts = RunParts(run, run.name)
    images = random_images(parts, num_images, seed)
    predictions, classifier, description = parts.predictions, parts.classifier, parts.description
    if not images or predictions is None or classifier is None or description is None:
        raise InputError(
            f"{run}: its predictions cannot be drawn: {'; '.join(parts.problems) or 'no images'}"
        )
    rows = [predictions.names.index(image.name) for image in images]
    intervals = [label_intervals(predictions, description.rules, row) for row in rows]
    shown = [[one.label for one in of_image[:SHOWN_HEATS]] for of_image in intervals]
    heats = _heats(classifier, images, shown)
    with figure_style():
        figure = _draw(images, intervals, heats)
    return Picture(
        "predictions",
        figure,
        alt=f"{len(images)} images with saliency and probability intervals of their likeliest labels.",
        caption="",
        numbers=Table.of(
            "probabilities",
            ("image", "label", "probability", "low", "high", "threshold", "has it"),
            [
                (image.name, one.name, one.probability, one.low, one.high, one.threshold, one.is_there)
                for image, of_image in zip(images, intervals, strict=True)
                for one in of_image
            ],
        ),
    )


def label_intervals(predictions: Predictions, rules: LabelRules, row: int) -> list[LabelInterval]:
    """The likeliest labels of an image, the most probable first, and those it has."""
    scores = predictions.scores[row : row + 1]
    sigma = None if predictions.sigma is None else predictions.sigma[row : row + 1]
    probabilities = rules.calibrate(logit(scores))
    low = high = probabilities
    if rules.probability_intervals is not None:
        fitted = ProbabilityIntervals.from_rows(rules.probability_intervals)
        low, high = fitted.interval(scores, probabilities, sigma)
    decided = rules.decide(scores)
    order = [int(label) for label in np.argsort(-probabilities[0], kind="stable")]
    there = [label for label in order if predictions.targets[row, label] == 1]
    others = [label for label in order if label not in there][: max(0, SHOWN_LABELS - len(there))]
    return [
        LabelInterval(
            label,
            predictions.labels[label],
            float(decided.probabilities[0, label]),
            float(low[0, label]),
            float(high[0, label]),
            float(decided.thresholds[label]),
            bool(decided.present[0, label]),
            label in there,
        )
        for label in order
        if label in (*there, *others)
    ]


def _heats(
    classifier: Classifier, images: Sequence[NamedImage], labels: Sequence[Sequence[int]]
) -> list[list[npt.NDArray[np.float64]]]:
    """For each image the heat of its labels, at the size of the image."""
    side = classifier.encoder.input_size
    pixels = np.stack([resize(image.pixels, side, side) for image in images])
    rows = [row for row, members in enumerate(labels) for _ in members]
    found = iter(label_heat(classifier, pixels, rows, [label for members in labels for label in members]))
    return [
        [enlarge(next(found), *image.pixels.shape[:2]) for _ in members]
        for image, members in zip(images, labels, strict=True)
    ]


def _draw(
    images: Sequence[NamedImage],
    intervals: Sequence[Sequence[LabelInterval]],
    heats: Sequence[Sequence[npt.NDArray[np.float64]]],
) -> Any:
    down = -(-len(images) // ACROSS)
    figure = new_figure(CARD[0] * min(ACROSS, len(images)), CARD[1] * down + 0.35)
    cards = figure.subfigures(down, min(ACROSS, len(images)), squeeze=False)
    for card, image, of_image, of_labels in zip(cards.flat, images, intervals, heats, strict=False):
        axes = card.subplots(1, 2 + SHOWN_HEATS, width_ratios=[1] * (1 + SHOWN_HEATS) + [1.15])
        for one in axes[:-1]:
            one.set_axis_off()
        axes[0].imshow(image.pixels)
        axes[0].set_title(short_name(image.name, 22), fontsize=8, loc="center", fontweight="normal")
        for panel, heat, one in zip(axes[1:], of_labels, of_image, strict=False):
            panel.imshow(overlay(image.pixels, heat))
            panel.set_title(f"evidence for {one.name}", fontsize=8, loc="center", fontweight="normal")
        _draw_intervals(axes[-1], of_image)
    figure.legend(
        handles=[
            Line2D([], [], color=HAS, marker="o", label="the image has the label"),
            Line2D([], [], color=LACKS, marker="o", label="it has not"),
            Line2D([], [], color=INK, marker="o", linestyle="", fillstyle="none", label="not predicted"),
            Line2D([], [], color=INK, marker="|", linestyle="", markersize=9, label="threshold"),
        ],
        loc="outside lower center",
        ncols=4,
        title="probability with its 90 % interval",
        title_fontsize=8.5,
    )
    return figure


def _draw_intervals(axes: Axes, intervals: Sequence[LabelInterval]) -> None:
    for place, one in enumerate(intervals):
        colour = HAS if one.is_there else LACKS
        axes.plot([one.low, one.high], [place, place], color=colour, linewidth=2.2, solid_capstyle="round")
        face = colour if one.is_predicted else "white"
        axes.plot(one.probability, place, "o", markersize=6, color=colour, markerfacecolor=face)
        axes.plot(one.threshold, place, "|", markersize=11, color=INK)
    axes.set_yticks(range(len(intervals)), shorten([one.name for one in intervals], 16))
    axes.set_ylim(len(intervals) - 0.5, -0.5)
    axes.set_xlim(-0.03, 1.03)
    axes.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])
    axes.grid(visible=False, axis="y")
