"""The section with the best and worst predicted images of each label."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Gallery, Heading, Missing, Section, Text, Thumbnail
from kmcl.reports.measured import Measured
from kmcl.reports.thumbnails import image_thumbnail, short_name

MOST_THUMBNAILS = 900
"""Per report, so that it stays small with 80 labels."""

MOST_IN_A_ROW = 5
LABELS_SHOWN_OPEN = 12


def examples_section(measured: Sequence[Measured], advance: Callable[[float], object]) -> Section:
    """advance: called with the share of the section that is done."""
    section = Section("Examples")
    if not measured:
        section.add(Missing("No run has predictions, so there are no images to choose."))
        return section
    num_labels = sum(one.predictions.num_labels for one in measured)
    in_a_row = max(1, min(MOST_IN_A_ROW, MOST_THUMBNAILS // (3 * num_labels)))
    section.add(
        Text(
            "For each label: images rightly given it with the highest probabilities, images that have it "
            "with the lowest, and images without it with the highest."
        )
    )
    num_done = 0
    for one in measured:
        if len(measured) > 1:
            section.add(Heading(one.name))
        if one.run.images is None and not one.run.takes_vectors:
            section.add(Missing(f"the images of {one.name} cannot be opened, so only their names are shown."))
        for label in range(one.predictions.num_labels):
            advance(num_done / num_labels)
            section.add(label_gallery(one, label, in_a_row))
            num_done += 1
    return section


def label_gallery(one: Measured, label: int, in_a_row: int) -> Gallery:
    """The three rows of one label."""
    predictions = one.predictions
    threshold = float(one.decisions.thresholds[label])
    probabilities, decided = one.decisions.probabilities[:, label], one.decisions.present[:, label]
    scores = predictions.scores[:, label].astype(np.float64)  # sorted by these, which have fewer ties
    positive, negative = predictions.positive[:, label], predictions.negative[:, label]
    chosen = (
        ("best hits", ranked(-scores, positive & decided)),
        ("worst misses: has the label, probability below the threshold", ranked(scores, positive & ~decided)),
        (
            "worst false alarms: lacks the label, probability above the threshold",
            ranked(-scores, negative & decided),
        ),
    )
    name = predictions.labels[label]
    rows = tuple(
        (
            f"{heading} ({len(rows)} in all)",
            tuple(_thumbnail(one, row, name, probabilities[row]) for row in rows[:in_a_row]),
        )
        for heading, rows in chosen
    )
    title = f"{name}: {int(positive.sum())} images, threshold {threshold:.3f}"
    return Gallery(title, rows, open=predictions.num_labels <= LABELS_SHOWN_OPEN)


def ranked(values: Values, chosen: np.typing.NDArray[np.bool_]) -> list[int]:
    """The chosen rows, lowest value first."""
    rows = np.flatnonzero(chosen)
    return [int(row) for row in rows[np.argsort(values[rows], kind="stable")]]


def _thumbnail(one: Measured, row: int, label: str, probability: float) -> Thumbnail:
    predictions = one.predictions
    carried = [predictions.labels[k] for k in np.flatnonzero(predictions.targets[row] == 1)]
    name, has = predictions.names[row], ", ".join(carried) or "no label"
    caption = f"{probability:.3f}\nhas: {has}\n{short_name(name)}"
    alt = f"{name}: probability {probability:.3f} of {label}; has {has}"
    return image_thumbnail(one.run, name, caption, alt)
