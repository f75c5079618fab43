"""What a file or folder is that cannot be opened as it was given, and how it can be."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from kmcl.errors import InputError

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".parquet", ".pq")
JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
SHEET_SUFFIXES = (".xlsx", ".xls", ".ods", ".numbers")

SAMPLED_BYTES = 1 << 16
SAMPLED_ENTRIES = 2000
SHOWN_FOLDERS = 3

_AS_TABLE = "write a table with a row per image and the columns image and labels"


def require_table(path: Path) -> None:
    """Raise InputError with what `path` seems to be, if that is known and is no table."""
    if reason := describe_source(path):
        raise InputError(f"table {path} {reason}")


def describe_source(path: Path) -> str | None:
    """What `path` is and what to do, as the end of a sentence; None for what may be a table."""
    if os.path.isdir(path):  # unlike Path.is_dir, False for a name that is too long
        return f"is a folder, not a file; {_describe_folder(path)}"
    suffix = path.suffix.lower()
    if not os.path.isfile(path):
        return None
    if suffix in JSON_SUFFIXES:
        return f"is JSON, not CSV, TSV or Parquet; {_describe_json(path)}"
    if suffix in SHEET_SUFFIXES:
        return "is a spreadsheet; save it as CSV"
    if suffix in (".xml", ".zip"):
        return f"is no table; annotations of CVAT are opened as cvat:{path}"
    if suffix == ".npz":
        return f"is an archive of arrays; MedMNIST's are opened as medmnist:{path}"
    return None


def _describe_folder(folder: Path) -> str:
    if (folder / "annotations" / "instances_train2014.json").exists():
        return f"it looks like COCO 2014: coco2014:{folder}"
    if any((folder / name).is_dir() for name in ("VOCdevkit", "VOC2007", "ImageSets")):
        return f"it looks like Pascal VOC: voc2007:{folder}"
    for kind, pattern in (("chestxray14", "Data_Entry_2017*.csv"), ("adp", "ADP_EncodedLabels*.csv")):
        if any(folder.glob(pattern)):
            return f"it looks like {kind}:{folder}"
    files, folders = _entries(folder)
    tables = [path for path in files if path.suffix.lower() in TABLE_SUFFIXES]
    if tables:
        return f"did you mean table:{min(tables)}?"
    annotations = [path for path in (*files, *_entries(folder / "annotations")[0]) if is_coco(path)]
    if annotations:
        return f"it looks like COCO annotations ({annotations[0].name}): coco:{folder}"
    if any((folder / name).is_file() for name in ("data.yaml", "classes.txt")):
        return f"it looks like a dataset of YOLO: yolo:{folder}"
    labels = sorted(inner.name for inner in folders if any(map(_is_image, _entries(inner)[0])))
    if labels:
        shown = ", ".join(labels[:SHOWN_FOLDERS]) + (", ..." if len(labels) > SHOWN_FOLDERS else "")
        return f"it looks like a folder per label ({shown}): folder:{folder}"
    if any(map(_is_image, files)):
        return f"it has images but no labels; {_AS_TABLE}"
    return "give the table inside it, as in table:labels.csv"


def _describe_json(path: Path) -> str:
    if is_coco(path):
        return f"it looks like COCO annotations: coco:{path}"
    if all(f'"{key}"' in _sample(path) for key in ("data", "annotations", "result")):
        return f"it looks like an export of Label Studio: labelstudio:{path}"
    return _AS_TABLE


def is_coco(path: Path) -> bool:
    if path.suffix.lower() != ".json" or not os.path.isfile(path):
        return False
    sample = _sample(path)
    return '"images"' in sample and ('"annotations"' in sample or '"categories"' in sample)


def _sample(path: Path) -> str:
    """The beginning and the end of a file: annotations may be larger than memory."""
    try:
        with path.open("rb") as file:
            start = file.read(SAMPLED_BYTES)
            file.seek(max(0, path.stat().st_size - SAMPLED_BYTES))
            return (start + file.read(SAMPLED_BYTES)).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _entries(folder: Path) -> tuple[list[Path], list[Path]]:
    """Files and folders inside a folder, not more than a sample; none where it cannot be read."""
    files: list[Path] = []
    folders: list[Path] = []
    for path in islice(_children(folder), SAMPLED_ENTRIES):
        (folders if path.is_dir() else files).append(path)
    return files, folders


def _children(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except OSError:
        return


def _is_image(path: Path) -> bool:
    from kmcl.data.image_formats import image_suffixes  # Pillow, which the names of the readers do not need

    return path.suffix.lower() in image_suffixes()
