"""The images to label next as files: a table, tasks of Label Studio, and a page of small pictures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Literal

from rich.console import Console

from kmcl.data import Dataset
from kmcl.data.files import decode_image
from kmcl.data.image_paths import GivenPaths, find_images, path_texts
from kmcl.data.readers.labelstudio import CONFIG
from kmcl.data.writers.labelstudio import LOCAL_FILES, labeling_interface
from kmcl.errors import InputError
from kmcl.evaluation.unfamiliarity import UNFAMILIAR_FROM
from kmcl.labelling.label_studio_tasks import make_task
from kmcl.labelling.next_images import Chosen, ChosenImage, choose_images, chosen_to_csv
from kmcl.progress import error_console, say
from kmcl.reports.blocks import Gallery, Section, Text, Thumbnail
from kmcl.reports.page import write_page
from kmcl.reports.thumbnails import encode, short_name
from kmcl.runs.dataset import open_run_dataset
from kmcl.runs.folder import RunFolder
from kmcl.serving.loading import load_in_torch
from kmcl.storage.atomic import write_text

FILE_NAME = "contact_sheet.html"
SIDE = 128
SHOWN_LABELS = 4


@dataclass(frozen=True)
class Selection:
    """The chosen images and their page; `num_images` were to choose from."""

    chosen: Chosen
    num_images: int
    page: Path


def select(
    run: str | PathLike[str],
    images: GivenPaths,
    *,
    count: int = 100,
    strategy: Literal["spread", "uncertain", "random"] = "spread",
    output: str | PathLike[str] = "to-label",
    url_prefix: str | None = None,
    url_root: str | PathLike[str] | None = None,
    seed: int = 0,
    progress: bool = True,
) -> Selection:
    """Choose the images to label next; writes a table, tasks of Label Studio and a contact sheet.

    url_prefix: where Label Studio finds the images, before their paths; its local files if not given
    url_root:   the folder that these paths start from
    """
    found = find_images(path_texts(images)).images
    console, path, folder = error_console(progress), Path(run), Path(output)
    predictor = load_in_torch(path)
    predictor.refuse_vectors("kmcl select")
    chosen = choose_images(predictor, found, _dataset_of(path, console), count, strategy, console, seed)
    name = path.resolve().name
    prefix = LOCAL_FILES if url_prefix is None else url_prefix
    root = None if url_root is None else Path(url_root)
    labels = predictor.labels
    tasks = [
        make_task(one.path, root, prefix, labels, one.probabilities, one.present, name)
        for one in chosen.images
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "images.csv", chosen_to_csv(chosen, labels))
        write_text(folder / "tasks.json", json.dumps(tasks, indent=1) + "\n")
        write_text(folder / CONFIG, labeling_interface(labels))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return Selection(chosen, len(found), _write_contact_sheet(folder, name, chosen, labels))


def _dataset_of(run: Path, console: Console) -> Dataset | None:
    """What a run was trained on; None, with a notice, where it cannot be opened."""
    if not RunFolder(run).is_begun:
        say(console, f"kmcl: {run} is no run, so that its labelled images are not known")
        return None
    try:
        return open_run_dataset(RunFolder(run).read_settings())
    except InputError as error:
        say(console, f"kmcl: the labelled images are not taken into account: {error}")
        return None


def _write_contact_sheet(folder: Path, run_name: str, chosen: Chosen, labels: Sequence[str]) -> Path:
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
