"""COCO's format: `annotations/instances_SPLIT.json` and `images/`.

A label of an image is an annotation whose box is the whole image, since nothing is known about places. An
image with unknown labels lists those that are absent as `neg_category_ids`, as LVIS does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kmcl.data.dataset import UNKNOWN, Dataset
from kmcl.data.writers.images import IMAGES, OnImage, WrittenImage, written_images
from kmcl.storage.atomic import write_text


def write_coco(dataset: Dataset, folder: Path, on_image: OnImage | None) -> str:
    (folder / IMAGES).mkdir()
    (folder / "annotations").mkdir()
    categories = [
        {"id": number, "name": name, "supercategory": ""} for number, name in enumerate(dataset.labels, 1)
    ]
    contents: dict[str, dict[str, Any]] = {
        split: {
            "info": {"description": dataset.name},
            "images": [],
            "annotations": [],
            "categories": categories,
        }
        for split in dataset.splits
    }
    for image in written_images(dataset, on_image):
        (folder / IMAGES / image.name).write_bytes(image.content)
        _add(contents[image.split], image)
    for split, content in contents.items():
        write_text(
            folder / "annotations" / f"instances_{split}.json", json.dumps(content, ensure_ascii=False)
        )
    return f"coco:{folder}"


def _add(content: dict[str, Any], image: WrittenImage) -> None:
    width, height = image.size
    number = len(content["images"]) + 1
    entry = {"id": number, "file_name": image.name, "width": width, "height": height}
    targets = image.targets.tolist()
    if UNKNOWN in targets:
        entry["neg_category_ids"] = [label for label, target in enumerate(targets, 1) if target == 0]
    content["images"].append(entry)
    for label, target in enumerate(targets, 1):
        if target == 1:
            content["annotations"].append(
                {
                    "id": len(content["annotations"]) + 1,
                    "image_id": number,
                    "category_id": label,
                    "bbox": [0, 0, width, height],
                    "area": width * height,
                    "segmentation": [],
                    "iscrowd": 0,
                }
            )
