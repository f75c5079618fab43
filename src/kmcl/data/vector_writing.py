"""Writing a dataset of feature vectors as an .npz file, which `features:` opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.column_names import require_names
from kmcl.data.dataset import Dataset
from kmcl.data.selection import join_splits
from kmcl.data.vectors import take_vectors
from kmcl.errors import InputError
from kmcl.storage.atomic import replacing


def write_vectors(dataset: Dataset, path: Path) -> None:
    """Write vectors, targets, labels, splits, names and groups, one split after the other."""
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: feature vectors are written as .npz; got {path.suffix or 'no ending'!r}")
    require_names(dataset.labels)
    everything = join_splits(dataset)
    rows = np.arange(len(everything))
    arrays: dict[str, npt.NDArray[Any]] = {
        "features": take_vectors(everything.images, rows),
        "targets": everything.targets,
        "labels": np.array(dataset.labels),
        "split": np.repeat(list(dataset.splits), [len(split) for split in dataset.splits.values()]),
        "ids": np.array([everything.images.name(row) for row in rows.tolist()]),
    }
    if everything.groups is not None:
        arrays["group"] = everything.groups
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
