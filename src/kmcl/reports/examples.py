"""The section with the best and worst predicted images of each label."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kmcl.evaluation.ranking import Values
from kmcl.reports.blocks import Gallery, Heading, Missing, Section, Text, Thumbnail
from kmcl.reports.measured import Measured
from kmcl.reports.thumbnails import image_thumbnail, short_name

MOST_THUMBNAILS = 900
"""Per report, so that it stays small with 80 labels."""

MOST_IN_A_ROW = 5
LABELS_SHOWN_OPEN = 12


def examples_section(measured: Sequence[Measured]) -> Section:
    section = Section("Examples")
    if not measured:
        section.add(Missing("No run has predictions, so there are no images to choose."))
        return section
    num_labels = sum(one.predictions.num_labels for one in measured)
    in_a_row = max(1, min(MOST_IN_A_ROW, MOST_THUMBNAILS // (3 * num_labels)))
    section.add(
        Text(
            "For each label: images rightly given it with the highest scores, images that have it with the "
            "lowest scores, and images without it that score highest."
        )
    )
    for one in measured:
        if len(measured) > 1:
            section.add(Heading(one.name))
        if one.run.images is None:
            section.add(Missing(f"the images of {one.name} cannot be opened, so only their names are shown."))
        section.add(*(label_gallery(one, label, in_a_row) for label in range(one.predictions.num_labels)))
    return section


def label_gallery(one: Measured, label: int, in_a_row: int) -> Gallery:
    """The three rows of one label."""
    predictions = one.predictions
    threshold = float(np.broadcast_to(one.run.decision_thresholds, predictions.num_labels)[label])
    scores = predictions.scores[:, label].astype(np.float64)
    positive, negative = predictions.positive[:, label], predictions.negative[:, label]
    decided = scores >= threshold
    chosen = (
        ("best hits", ranked(-scores, positive & decided)),
        ("worst misses: has the label, score below the threshold", ranked(scores, positive & ~decided)),
        (
            "worst false alarms: lacks the label, score above the threshold",
            ranked(-scores, negative & decided),
        ),
    )
    name = predictions.labels[label]
    rows = tuple(
        (
            f"{heading} ({len(rows)} in all)",
            tuple(_thumbnail(one, row, name, scores[row]) for row in rows[:in_a_row]),
        )
        for heading, rows in chosen
    )
    title = f"{name}: {int(positive.sum())} images, threshold {threshold:.3f}"
    return Gallery(title, rows, open=predictions.num_labels <= LABELS_SHOWN_OPEN)


def ranked(values: Values, chosen: np.typing.NDArray[np.bool_]) -> list[int]:
    """The chosen rows, lowest value first."""
    rows = np.flatnonzero(chosen)
    return [int(row) for row in rows[np.argsort(values[rows], kind="stable")]]


def _thumbnail(one: Measured, row: int, label: str, score: float) -> Thumbnail:
    predictions = one.predictions
    carried = [predictions.labels[k] for k in np.flatnonzero(predictions.targets[row] == 1)]
    caption = f"{score:.3f}\nhas: {', '.join(carried) or 'no label'}\n{short_name(predictions.names[row])}"
    alt = f"{predictions.names[row]}: score {score:.3f} for {label}; has {', '.join(carried) or 'no label'}"
    return image_thumbnail(one.run, predictions.names[row], caption, alt)
