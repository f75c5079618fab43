"""What a file or folder is that was given without a kind of dataset, or with the wrong one."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from kmcl.data.image_formats import image_suffixes
from kmcl.data.readers.split_names import SPLIT_SPELLINGS
from kmcl.errors import InputError

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".parquet", ".pq")
JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
SHEET_SUFFIXES = (".xlsx", ".xls", ".ods", ".numbers")

SAMPLED_BYTES = 1 << 16
SAMPLED_ENTRIES = 2000
SHOWN_FOLDERS = 3

_AS_TABLE = "write a table with a row per image and the columns image and labels"


class Recognised(NamedTuple):
    """What a path seems to be.

    kind:     of dataset; None where it is not known, or where several could be meant
    location: what is opened as that kind
    text:     the end of a sentence about the path, for one who gave it as a table
    """

    kind: str | None
    location: Path
    text: str


def require_table(path: Path) -> None:
    """Raise InputError with what `path` seems to be, if that is known and is no table."""
    if found := recognise(path):
        raise InputError(f"table {path} {found.text}")


def recognise(path: Path) -> Recognised | None:
    """What `path` is; None for what may be a table, or is nothing."""
    if os.path.isdir(path):  # unlike Path.is_dir, False for a name that is too long
        found = _recognise_folder(path)
        return found._replace(text=f"is a folder, not a file; {found.text}")
    suffix = path.suffix.lower()
    if not os.path.isfile(path):
        return None
    if suffix in JSON_SUFFIXES:
        found = _recognise_json(path)
        return found._replace(text=f"is JSON, not CSV, TSV or Parquet; {found.text}")
    if suffix in SHEET_SUFFIXES:
        return Recognised(None, path, "is a spreadsheet; save it as CSV")
    if suffix in (".yaml", ".yml") and "names:" in _sample(path):
        return Recognised("yolo", path, f"is no table; it looks like a dataset of YOLO: yolo:{path}")
    if suffix in (".xml", ".zip"):
        return Recognised("cvat", path, f"is no table; annotations of CVAT are opened as cvat:{path}")
    if suffix == ".npz":
        kind = "medmnist" if _is_medmnist(path) else "features"
        what = "images of MedMNIST" if kind == "medmnist" else "feature vectors with their labels"
        return Recognised(kind, path, f"is an archive of arrays; {what} are opened as {kind}:{path}")
    return None


def _recognise_folder(folder: Path) -> Recognised:
    def like(kind: str, what: str) -> Recognised:
        return Recognised(kind, folder, f"it looks like {what}: {kind}:{folder}")

    if (folder / "annotations" / "instances_train2014.json").exists():
        return like("coco2014", "COCO 2014")
    if any((folder / name).is_dir() for name in ("VOCdevkit", "VOC2007", "ImageSets")):
        return like("voc2007", "Pascal VOC")
    for kind, name, pattern in (
        ("chestxray14", "ChestX-ray14", "Data_Entry_2017*.csv"),
        ("adp", "ADP", "ADP_EncodedLabels*.csv"),
    ):
        if any(folder.glob(pattern)):
            return like(kind, name)
    files, folders = _entries(folder)
    if tables := sorted(path for path in files if path.suffix.lower() in TABLE_SUFFIXES):
        only_one = "table" if len(tables) == 1 else None
        return Recognised(only_one, tables[0], f"did you mean table:{tables[0]}?")
    annotations = [path for path in (*files, *_entries(folder / "annotations")[0]) if is_coco(path)]
    if annotations:
        return like("coco", f"COCO annotations ({annotations[0].name})")
    if any((folder / name).is_file() for name in ("data.yaml", "classes.txt")):
        return like("yolo", "a dataset of YOLO")
    if labels := _folders_of_labels(folders):
        shown = ", ".join(labels[:SHOWN_FOLDERS]) + (", ..." if len(labels) > SHOWN_FOLDERS else "")
        return like("folder", f"a folder per label ({shown})")
    if any(map(_is_image, files)):
        return Recognised(None, folder, f"it has images but no labels; {_AS_TABLE}")
    return Recognised(None, folder, "give the table inside it, as in table:labels.csv")


def _folders_of_labels(folders: list[Path]) -> list[str]:
    """Names of the folders that hold images, those of splits looked into."""
    of_splits = [folder for folder in folders if folder.name.lower() in SPLIT_SPELLINGS]
    inner = [label for folder in of_splits for label in _entries(folder)[1]]
    return sorted({path.name for path in inner or folders if any(map(_is_image, _entries(path)[0]))})


def _recognise_json(path: Path) -> Recognised:
    if is_coco(path):
        return Recognised("coco", path, f"it looks like COCO annotations: coco:{path}")
    if all(f'"{key}"' in _sample(path) for key in ("data", "annotations", "result")):
        text = f"it looks like an export of Label Studio: labelstudio:{path}"
        return Recognised("labelstudio", path, text)
    return Recognised(None, path, _AS_TABLE)


def _is_medmnist(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "train_images.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


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
    return path.suffix.lower() in image_suffixes()
