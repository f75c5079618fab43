"""The formats that datasets are written in."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from kmcl.data.column_names import require_names
from kmcl.data.dataset import Dataset
from kmcl.data.vectors import refuse_vectors
from kmcl.data.writers.images import OnImage, require_new
from kmcl.errors import InputError, suggest
from kmcl.home_folder import expand_home
from kmcl.storage.atomic import rename_folder

WRITERS = {
    "table": "kmcl.data.writers.table:write_table_folder",
    "coco": "kmcl.data.writers.coco:write_coco",
    "folder": "kmcl.data.writers.folder:write_folder",
    "labelstudio": "kmcl.data.writers.labelstudio:write_labelstudio",
    "hf": "kmcl.data.writers.hf:write_hf",
}


def write_dataset(dataset: Dataset, target: str, on_image: OnImage | None = None) -> str:
    """Write a dataset to a new folder in another format; returns the dataset spec that opens it.

    Images that are files stay as they are; others become PNG. The folder gets its name when all is written,
    so that what was interrupted is not taken for the whole.

    target:   `table:FOLDER`, `coco:FOLDER`, `folder:FOLDER`, `labelstudio:FOLDER` or `hf:FOLDER`; a folder
              alone is a table
    on_image: called with 1 after each image
    """
    kind, colon, location = target.partition(":")
    if not colon:
        kind, location = "table", target
    if kind not in WRITERS or not location:
        raise InputError(
            f"{target!r} is no format to write{suggest(kind, WRITERS)}; known are "
            f"{', '.join(f'{name}:FOLDER' for name in WRITERS)}"
        )
    refuse_vectors(dataset)
    require_names(dataset.labels)
    folder = expand_home(location)
    module, _, name = WRITERS[kind].partition(":")
    write: Callable[[Dataset, Path, OnImage | None], str] = getattr(import_module(module), name)
    require_new(folder)
    unfinished = folder.absolute().with_name(f".{folder.absolute().name}.{secrets.token_hex(4)}.partial")
    try:
        unfinished.mkdir(parents=True)
        spec = write(dataset, unfinished, on_image)
        if folder.exists():
            folder.rmdir()
        rename_folder(unfinished, folder)
        return spec.replace(str(unfinished), str(folder))
    except OSError as error:
        raise InputError(f"{folder}: cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
