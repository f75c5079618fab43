"""Label Studio's exports JSON and JSON-MIN: an image has the choices or the labels of the regions of a task.

Where several people annotated a task, a label is present if most of them chose it, absent if fewer than half
did, and unknown if they are even; an annotation that was marked as ground truth decides alone. Cancelled
annotations do not count; tasks that were skipped or not annotated are left out.

Images are found by the ends of their paths: `/data/local-files/?d=photos/1.jpg`, addresses, plain paths, and
`/data/upload/3/1f2e3d4c-1.jpg`, with or without the code before the name. The task's data may have `split`,
`group` and `unknown_labels`. `label_config.xml` beside the export, the project's labeling interface, gives
the labels in their order, also those that nobody chose.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree

from kmcl.data.dataset import Dataset
from kmcl.data.files import require_file
from kmcl.data.groups import group_name
from kmcl.data.image_lookup import FolderIndex, find_images, is_image_name
from kmcl.data.readers.annotations import AnnotatedImage, AnnotationOptions, dataset_from_annotations
from kmcl.data.readers.reader import Reader
from kmcl.data.readers.row_problems import RowError, RowProblem, refuse_rows
from kmcl.errors import InputError
from kmcl.home_folder import expand_home

CONFIG = "label_config.xml"
UPLOAD_CODE = re.compile(r"^[0-9a-f]{8}-(?=.)")
OWN_KEYS = {"annotator", "annotation_id", "created_at", "id", "lead_time", "updated_at"}
"""Keys of JSON-MIN that are not about the image or its labels."""


class LabelStudioOptions(AnnotationOptions):
    """Options of `labelstudio:`.

    agreement: where annotators disagree: `majority` decides, and a label is unknown if they are even; with
               `all` it is unknown unless all agree.
    control:   the name of the control tag whose labels count; default all.
    image_key: the key of the task's data that has the image; default the first one with the path of an image.
    config:    the labeling interface (XML) with the labels in order; default `label_config.xml`.
    """

    agreement: Literal["majority", "all"] = "majority"
    control: str | None = None
    image_key: str | None = None
    config: Path | None = None


def read_labelstudio(path: Path, options: LabelStudioOptions) -> Dataset:
    """Read an export; see the module's description of the format."""
    tasks = _read_tasks(require_file(path, "Label Studio export"))
    try:
        annotated, num_skipped = _annotated_images(tasks, path, options)
    except (AttributeError, KeyError, TypeError) as error:
        raise InputError(
            f"Label Studio export {path} has tasks of another form than those of JSON and JSON-MIN: {error}"
        ) from error
    if not annotated:
        raise InputError(
            f"Label Studio export {path} has no annotated task ({num_skipped} without annotation)"
        )
    folder = path.parent if options.images is None else path.parent / expand_home(options.images)
    index = FolderIndex(folder)
    images = find_images(_found_names(annotated, index), [folder], path, index)
    notes = [f"left out, skipped or not annotated: {num_skipped} tasks"] if num_skipped else []
    return dataset_from_annotations(
        annotated,
        images,
        _listed_labels(path, options),
        options,
        name=path.stem,
        source=f"Label Studio export {path}",
        notes=notes,
    )


def _annotated_images(
    tasks: list[dict[str, Any]], path: Path, options: LabelStudioOptions
) -> tuple[list[AnnotatedImage], int]:
    """The images of the tasks that were annotated, and the number of the others."""
    annotated = []
    problems = []
    num_skipped = 0
    for number, (task, votes) in enumerate(_votes_of_tasks(tasks, options), 1):
        data = task.get("data", task)
        if not votes:
            num_skipped += 1
            continue
        image = _image_of(data, options.image_key)
        if image is None:
            message = "its data names no image; say which key does with image_key=..."
            if options.image_key is not None:
                message = f"its data has no {options.image_key!r} (asked for by image_key)"
            problems.append(RowProblem(number, message, place=f"task {task.get('id', number)}"))
            continue
        labels, disputed = _count(votes, options.agreement)
        unknown = frozenset(_names(data.get("unknown_labels") or ())) | disputed
        split, group = str(data.get("split") or ""), group_name(data.get("group"))
        annotated.append(AnnotatedImage(image_path(image), labels, unknown - labels, split, group))
    if problems:
        refuse_rows(RowError(f"Label Studio export {path}", problems))
    return annotated, num_skipped


def _read_tasks(path: Path) -> list[dict[str, Any]]:
    try:
        tasks = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"Label Studio export {path} is not readable JSON: {error}") from error
    if not isinstance(tasks, list) or not all(isinstance(task, dict) for task in tasks):
        raise InputError(
            f"Label Studio export {path} is not a list of tasks; export the project as JSON or JSON-MIN"
        )
    if not tasks:
        raise InputError(f"Label Studio export {path} has no task")
    return tasks


Vote = frozenset[str]
"""The labels of an image according to one annotation."""


def _votes_of_tasks(
    tasks: list[dict[str, Any]], options: LabelStudioOptions
) -> Iterable[tuple[dict[str, Any], list[Vote]]]:
    if any("data" in task for task in tasks):
        for task in tasks:
            # Exports of older projects call annotations completions.
            given = task.get("annotations", task.get("completions")) or []
            valid = [one for one in given if not (one.get("was_cancelled") or one.get("skipped"))]
            valid = [one for one in valid if one.get("ground_truth")] or valid
            yield task, [_labels_of_results(one.get("result") or [], options.control) for one in valid]
        return
    rows_of_task: dict[object, list[dict[str, Any]]] = {}
    for number, row in enumerate(tasks):  # JSON-MIN has a row per annotation
        rows_of_task.setdefault(row.get("id", f"row {number}"), []).append(row)
    for rows in rows_of_task.values():
        yield rows[0], [_labels_of_row(row, options) for row in rows]


def _labels_of_results(results: Iterable[Mapping[str, Any]], control: str | None) -> Vote:
    """The labels in the results of an annotation: choices, taxonomies, and labels of regions."""
    labels: set[str] = set()
    for result in results:
        if control is None or result.get("from_name") == control:
            values = (result.get("value") or {}).get(str(result.get("type")), [])
            labels.update(_names(values if isinstance(values, list) else []))
    return frozenset(labels)


def _names(values: Iterable[Any]) -> Iterable[str]:
    for value in values:
        if isinstance(value, list):  # a taxonomy has the path to each choice
            yield from _names(value)
        elif isinstance(value, str):
            yield value


def _labels_of_row(row: Mapping[str, Any], options: LabelStudioOptions) -> Vote:
    """JSON-MIN: a choice, {"choices": [...]} for several, or a list of regions, under the control's name."""
    labels: set[str] = set()
    for key, value in row.items():
        is_control = key == options.control if options.control else key not in OWN_KEYS
        if not is_control or key in ("split", "group", "unknown_labels", options.image_key):
            continue
        if isinstance(value, str) and not _is_image_reference(value):
            labels.add(value)
        elif isinstance(value, dict):
            labels.update(_names(value.get("choices", [])))
        elif isinstance(value, list):
            regions = [entry for entry in value if isinstance(entry, dict)]
            labels.update(
                name
                for region in regions
                for key in region
                if key.endswith("labels")
                for name in _names(region[key])
            )
    return frozenset(labels)


def _count(votes: list[Vote], agreement: str) -> tuple[Vote, Vote]:
    """The labels that are present, and those on which the annotators disagree."""
    counts = Counter(label for vote in votes for label in vote)
    if agreement == "all":
        present = {label for label, count in counts.items() if count == len(votes)}
        return frozenset(present), frozenset(counts) - present
    present = {label for label, count in counts.items() if 2 * count > len(votes)}
    return frozenset(present), frozenset(label for label, count in counts.items() if 2 * count == len(votes))


def _image_of(data: Mapping[str, Any], key: str | None) -> str | None:
    if key is not None:
        return data[key] if isinstance(data.get(key), str) else None
    return next((str(value) for value in data.values() if _is_image_reference(value)), None)


def _is_image_reference(value: object) -> bool:
    return (
        isinstance(value, str) and ("/" in value or is_image_name(value)) and is_image_name(image_path(value))
    )


def image_path(reference: str) -> str:
    """The path in a reference to an image: `/data/local-files/?d=a/1.jpg` and addresses are unpacked."""
    try:
        parts = urlsplit(reference)
    except ValueError:  # no address at all
        return reference
    inner = parse_qs(parts.query).get("d")
    if inner:
        return inner[0]
    return unquote(parts.path).lstrip("/") if parts.scheme or "/" in reference else reference


def _found_names(annotated: list[AnnotatedImage], index: FolderIndex) -> list[str]:
    """Paths of uploads without the code before their names where no image has that code in its name."""
    names = []
    for image in annotated:
        folder, slash, name = image.path.rpartition("/")
        plain = UPLOAD_CODE.sub("", name)
        keeps = plain == name or index.find(image.path) is not None
        names.append(image.path if keeps else f"{folder}{slash}{plain}")
    return names


def _listed_labels(path: Path, options: LabelStudioOptions) -> list[str]:
    config = path.with_name(CONFIG) if options.config is None else path.parent / expand_home(options.config)
    if options.config is None and not config.is_file():
        return []
    require_file(config, "labeling interface")
    try:
        tags = ElementTree.parse(config).iter()
    except (ElementTree.ParseError, LookupError, OSError, ValueError) as error:
        raise InputError(f"labeling interface {config} cannot be read: {error}") from error
    return [
        value
        for tag in tags
        if tag.tag in ("Choice", "Label") and (value := tag.get("alias") or tag.get("value"))
    ]


READER = Reader(read_labelstudio, LabelStudioOptions, place="an export as JSON")
