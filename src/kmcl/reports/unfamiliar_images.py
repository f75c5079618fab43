"""How many images of a run are unlike its training images, and which."""

from __future__ import annotations

import numpy as np

from kmcl.evaluation.unfamiliarity import FALSE_ALARM_RATE, is_unfamiliar
from kmcl.reports.blocks import Block, Gallery, Text, percent
from kmcl.reports.measured import Measured
from kmcl.reports.thumbnails import image_thumbnail, short_name

SHOWN_IMAGES = 8


def unfamiliar_blocks(one: Measured) -> list[Block]:
    """The share of unfamiliar images and the most unfamiliar ones; a sentence where nothing is known."""
    values = one.predictions.unfamiliarity
    if values is None:
        return [
            Text(
                f"{one.name} does not say how unlike its training images an image is: it has no post-hoc "
                "part unfamiliarity."
            )
        ]
    found = is_unfamiliar(values)
    words = (
        f"{int(found.sum())} of {len(values)} images of {one.split}, {percent(float(found.mean()))} %, count "
        f"as unlike the training images. Of images like those of val, {percent(FALSE_ALARM_RATE, 0)} % do."
    )
    order = np.argsort(-values.astype(np.float64), kind="stable")[:SHOWN_IMAGES]
    thumbnails = []
    for row in map(int, order):
        name = one.predictions.names[row]
        caption = f"{values[row]:.4f}\n{short_name(name)}"
        thumbnails.append(image_thumbnail(one.run, name, caption, f"{name}, unfamiliarity {values[row]:.4f}"))
    rows = (("most unlike the training images, by unfamiliarity", tuple(thumbnails)),)
    return [Text(words), Gallery("Unfamiliar images", rows)]
