"""The chosen images as a page: small pictures with what the model finds in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kmcl.data.files import decode_image
from kmcl.errors import InputError
from kmcl.evaluation.unfamiliarity import UNFAMILIAR_FROM
from kmcl.labelling.next_images import Chosen, ChosenImage
from kmcl.reports.blocks import Gallery, Section, Text, Thumbnail
from kmcl.reports.page import write_page
from kmcl.reports.thumbnails import encode, short_name

FILE_NAME = "contact_sheet.html"
SIDE = 128
SHOWN_LABELS = 4


def write_contact_sheet(folder: Path, run_name: str, chosen: Chosen, labels: Sequence[str]) -> Path:
    """Write the page; returns its path."""
    section = Section("Images to label")
    thumbnails = [_thumbnail(rank, image, labels) for rank, image in enumerate(chosen.images, start=1)]
    section.add(
        Text(
            "The most wanted first, with the model's predictions, and what the labelled images leave open "
            "about them (novelty, from 0 to 1)."
        ),
        Gallery(f"{len(thumbnails)} images", (("", tuple(thumbnails)),)),
    )
    subtitle = f"{len(thumbnails)} images, chosen with the model {run_name}."
    footer = "images.csv has the same images as a table, tasks.json as tasks of Label Studio."
    return write_page(folder, FILE_NAME, "Images to label next", subtitle, [section], footer)


def _thumbnail(rank: int, image: ChosenImage, labels: Sequence[str]) -> Thumbnail:
    found = sorted(
        (
            (float(p), label)
            for p, label, there in zip(image.probabilities, labels, image.present, strict=True)
            if there
        ),
        reverse=True,
    )
    predicted = ", ".join(f"{label} {100 * p:.0f} %" for p, label in found[:SHOWN_LABELS]) or "no label"
    lines = [f"{rank}. {short_name(image.path.as_posix())}", predicted, f"novelty {image.novelty:.2f}"]
    if image.unfamiliarity is not None and image.unfamiliarity >= UNFAMILIAR_FROM:
        lines.append("unlike the training images")
    try:
        jpeg = encode(decode_image(image.path, SIDE), SIDE)
    except InputError:
        jpeg = None
    return Thumbnail(jpeg, f"{image.path.name}: {predicted}", "\n".join(lines))
