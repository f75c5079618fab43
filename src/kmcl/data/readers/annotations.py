"""What annotation programs export, image by image, made into a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kmcl.data.dataset import UNKNOWN, Dataset, ImageStore, Split
from kmcl.data.groups import has_groups
from kmcl.data.readers.options import DrawOptions, Names
from kmcl.data.readers.split_names import divide
from kmcl.data.readers.table_targets import Unlisted
from kmcl.data.splitting import finish_splits
from kmcl.errors import InputError, suggest


class AnnotationOptions(DrawOptions):
    """Options of what annotation programs export.

    images:      the folder of the images; default: looked for near the annotations.
    label_names: the labels in order; default those that the source lists, else all that occur.
    unlisted:    whether a label that an image does not have in the annotations is absent or unknown.
    """

    images: Path | None = None
    label_names: Names | None = None
    unlisted: Unlisted = "absent"


@dataclass(frozen=True)
class AnnotatedImage:
    """One image of an export: its path as the export has it, its labels, and what else is known.

    unknown: labels that were not annotated, or on which annotators disagree
    """

    path: str
    labels: frozenset[str]
    unknown: frozenset[str] = field(default_factory=frozenset)
    split: str = ""
    group: str = ""


def dataset_from_annotations(
    annotated: Sequence[AnnotatedImage],
    images: ImageStore,
    listed: Iterable[str],
    options: AnnotationOptions,
    *,
    name: str,
    source: str,
    notes: Sequence[str] = (),
) -> Dataset:
    """The dataset of the annotated images, in their order.

    listed: the labels that the source lists, in order; those that occur besides are added alphabetically
    source: what the annotations were read from, for messages
    """
    occurring = sorted({label for image in annotated for label in image.labels | image.unknown})
    labels = tuple(options.label_names or dict.fromkeys([*listed, *occurring]))
    position = {label: index for index, label in enumerate(labels)}
    others = [label for label in occurring if label not in position]
    if others:
        near = suggest(others[0], labels)
        raise InputError(f"{source} has the label {others[0]!r}, which is not among label_names{near}")
    if not any(image.labels for image in annotated):
        raise InputError(f"{source}: no image has a label")
    unlisted = UNKNOWN if options.unlisted == "unknown" else 0
    targets = np.full((len(annotated), len(labels)), unlisted, dtype=np.int8)
    for row, image in enumerate(annotated):
        targets[row, [position[label] for label in image.unknown]] = UNKNOWN
        targets[row, [position[label] for label in image.labels]] = 1
    groups = np.array([image.group for image in annotated])
    everything = Split(images, targets, groups=groups if has_groups(groups) else None)
    splits = divide(everything, [image.split for image in annotated], options, source)
    return Dataset(name, labels, finish_splits(splits, options), tuple(notes))
