"""Writing a dataset of feature vectors as an .npz file, which `features:` opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kmcl.data.dataset import Dataset
from kmcl.data.vectors import take_vectors
from kmcl.errors import InputError
from kmcl.storage.atomic import replacing


def write_vectors(dataset: Dataset, path: Path) -> None:
    """Write vectors, targets, labels, splits, names and groups, one split after the other."""
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: feature vectors are written as .npz; got {path.suffix or 'no ending'!r}")
    splits = dataset.splits
    arrays: dict[str, npt.NDArray[Any]] = {
        "features": np.concatenate([take_vectors(s.images, np.arange(len(s))) for s in splits.values()]),
        "targets": np.concatenate([split.targets for split in splits.values()]),
        "labels": np.array(dataset.labels),
        "split": np.repeat(list(splits), [len(split) for split in splits.values()]),
        "ids": np.array([s.images.name(row) for s in splits.values() for row in range(len(s))]),
    }
    groups = [split.groups for split in splits.values() if split.groups is not None]
    if len(groups) == len(splits):
        arrays["group"] = np.concatenate(groups)
    with replacing(path) as partial, partial.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
