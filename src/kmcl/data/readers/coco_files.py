"""Annotation files in the format of COCO: categories, images, and annotations that join them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import UNKNOWN
from kmcl.data.files import require_file
from kmcl.data.readers.row_problems import RowError, RowProblem
from kmcl.data.source_cache import Arrays, cached_arrays
from kmcl.errors import InputError

CACHE_VERSION = "coco-2"
OUTLINE_KEY = b'"segmentation":'


def read_instances(path: Path) -> Arrays:
    """What an annotation file says, from the cache if it is unchanged.

    labels, parents: names of the categories and of their supercategories, in the order of the ids
    names, targets:  file names of the images, and N x L targets: 1 where an image has an annotation
    lists_absent:    N, whether the image says which labels are absent; its other labels are unknown
    num_stray:       annotations of images that the file does not list
    """
    require_file(path, "COCO annotations")
    return cached_arrays(path.stem, [path], CACHE_VERSION, lambda: _parse_instances(path))


def _parse_instances(path: Path) -> Arrays:
    try:
        content = json.loads(without_outlines(path.read_bytes()))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"COCO annotations {path} are not readable JSON: {error}") from error
    try:
        return _condense(content, f"COCO annotations {path}")
    except RowError:
        raise
    except InputError as error:
        raise InputError(f"COCO annotations {path}: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"COCO annotations {path} lack the expected images, annotations and categories: {error!r}"
        ) from error


def without_outlines(text: bytes) -> bytes:
    """The JSON text with every value of "segmentation" replaced by null.

    The outlines are two thirds of the file and most of its numbers: without them it parses three times as
    fast, in a third of the memory. A polygon is a list of lists of numbers and ends at the last bracket
    before the next key or closing brace; a crowd's outline is an object without objects inside. What is
    neither stays as it is.
    """
    kept = []
    start = 0
    while (key := text.find(OUTLINE_KEY, start)) >= 0:
        value = key + len(OUTLINE_KEY)
        while text[value : value + 1].isspace():
            value += 1
        brace = text.find(b"}", value)
        if text[value : value + 1] == b"{":
            end = brace + 1
        elif text[value : value + 1] == b"[":
            quote = text.find(b'"', value, brace)
            end = text.rfind(b"]", value, quote if quote >= 0 else brace) + 1
        else:
            end = 0
        kept.append(text[start:value])
        if end > value:
            kept.append(b"null")
        start = max(value, end)
    kept.append(text[start:])
    return b"".join(kept)


def _condense(content: dict[str, Any], source: str) -> Arrays:
    # Ids have gaps; the published order of COCO's 80 labels is that of their ids.
    categories = sorted(content["categories"], key=lambda category: category["id"])
    column = {category["id"]: index for index, category in enumerate(categories)}
    images = content["images"]
    row = {image["id"]: index for index, image in enumerate(images)}
    if len(row) < len(images) or len(column) < len(categories):
        raise InputError("two images or two categories have the same id")
    targets: npt.NDArray[np.int8] = np.zeros((len(images), len(categories)), dtype=np.int8)
    lists_absent = np.zeros(len(images), dtype=np.bool_)
    for index, image in enumerate(images):
        # LVIS names the categories that were looked for and not found; nothing is known about the others.
        if (absent := image.get("neg_category_ids")) is not None:
            lists_absent[index] = True
            targets[index] = UNKNOWN
            targets[index, [column[category] for category in absent]] = 0
    num_stray = 0
    problems = []
    for number, annotation in enumerate(content["annotations"]):
        if (category := annotation["category_id"]) not in column:
            problems.append(
                RowProblem(
                    number,
                    f"has the category {category}, which is not in the list",
                    "annotations have categories that are not in the list",
                    str(category),
                    place=f"annotation {annotation.get('id', f'number {number}')}",
                )
            )
            continue
        # Files reduced by hand may still have annotations of images they no longer list.
        found = row.get(annotation["image_id"])
        num_stray += found is None
        if found is not None:
            targets[found, column[category]] = 1
    if problems:  # at once, for what is returned is cached
        raise RowError(source, problems)
    return {
        "labels": np.array([_text(category["name"]).strip() for category in categories], dtype=np.str_),
        "parents": np.array([str(category.get("supercategory", "")) for category in categories], np.str_),
        "names": np.array([_text(image["file_name"]) for image in images], dtype=np.str_),
        "targets": targets,
        "lists_absent": lists_absent,
        "num_stray": np.array(num_stray),
    }


def _text(value: object) -> str:
    if isinstance(value, str | int) and str(value):
        return str(value)
    raise TypeError(f"{value!r:.80} instead of a name")
