"""The statistics of a pretrained encoder's feature maps for the splits of a dataset, computed once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor

from kmcl.data import open_dataset
from kmcl.labelling.image_features import pretrained_extractor


class Images(NamedTuple):
    """directions: N x D unit vectors, as `FrozenFeatureGP` compares them, on the main directions of train"""

    directions: Tensor
    targets: npt.NDArray[np.int8]


def read_splits(
    data: str, splits: tuple[str, ...], image_size: int, keep: Path
) -> tuple[tuple[str, ...], dict[str, Images]]:
    """The labels, and the images of each split, `train` among them.

    keep: folder for the unit vectors; those that are there are not computed again
    """
    dataset = open_dataset(data)
    keep.mkdir(parents=True, exist_ok=True)
    missing = [
        name for name in dict.fromkeys(["train", *splits]) if not (keep / f"{name}-unit.npz").is_file()
    ]
    if missing:
        extractor = pretrained_extractor(Console(stderr=True), image_size=image_size)
        train = extractor.describe(dataset.splits["train"], "train")
        for name in missing:
            found = train if name == "train" else extractor.describe(dataset.splits[name], name)
            unit = train.directions_of(found.statistics)
            np.savez(keep / f"{name}-unit.npz", unit=unit, targets=dataset.splits[name].targets[found.rows])
    arrays = {name: np.load(keep / f"{name}-unit.npz") for name in splits}
    return dataset.labels, {
        name: Images(torch.from_numpy(each["unit"]), each["targets"]) for name, each in arrays.items()
    }
