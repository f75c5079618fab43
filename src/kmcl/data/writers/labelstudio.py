"""Label Studio: annotated tasks to import, the labeling interface, and the images.

The tasks name the images as local files: serve the folder with LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED and
LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT. Choices cannot say that a label is unknown; a task's data lists such
labels as `unknown_labels`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.data.readers.labelstudio import CONFIG
from kmcl.data.writers.images import IMAGES, OnImage, WrittenImage, written_images
from kmcl.storage.atomic import write_text

TASKS = "tasks.json"
CONTROL, OBJECT = "labels", "image"
"""Names in the labeling interface."""
LOCAL_FILES = "/data/local-files/?d="
"""How Label Studio names a file below LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT."""


def write_labelstudio(dataset: Dataset, folder: Path, on_image: OnImage | None) -> str:
    (folder / IMAGES).mkdir()
    tasks = []
    for number, image in enumerate(written_images(dataset, on_image), 1):
        (folder / IMAGES / image.name).write_bytes(image.content)
        tasks.append(_task(number, image, dataset.labels))
    write_text(folder / CONFIG, labeling_interface(dataset.labels))
    write_text(folder / TASKS, json.dumps(tasks, ensure_ascii=False, indent=1))
    return f"labelstudio:{folder / TASKS}"


def labeling_interface(labels: tuple[str, ...]) -> str:
    """The XML of a project in which several labels of an image can be chosen."""
    view = ElementTree.Element("View")
    ElementTree.SubElement(view, "Image", name=OBJECT, value=f"${OBJECT}")
    choices = ElementTree.SubElement(view, "Choices", name=CONTROL, toName=OBJECT, choice="multiple")
    for label in labels:
        ElementTree.SubElement(choices, "Choice", value=label)
    ElementTree.indent(view)
    return ElementTree.tostring(view, encoding="unicode") + "\n"


def _task(number: int, image: WrittenImage, labels: tuple[str, ...]) -> dict[str, Any]:
    chosen = [label for label, target in zip(labels, image.targets, strict=True) if target == 1]
    unknown = [label for label, target in zip(labels, image.targets, strict=True) if target == UNKNOWN]
    data: dict[str, Any] = {
        OBJECT: LOCAL_FILES + quote(f"{IMAGES}/{image.name}"),
        "split": image.split,
    }
    if image.group:
        data["group"] = image.group
    if unknown:
        data["unknown_labels"] = unknown
    result = {"from_name": CONTROL, "to_name": OBJECT, "type": "choices", "value": {"choices": chosen}}
    annotation = {"was_cancelled": False, "ground_truth": False, "result": [result] if chosen else []}
    return {"id": number, "data": data, "annotations": [annotation]}
