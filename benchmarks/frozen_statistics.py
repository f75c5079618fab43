"""The statistics of a pretrained encoder's feature maps for the splits of a dataset, computed once."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from rich.console import Console
from torch import Tensor, nn

from kmcl.data import open_dataset
from kmcl.labelling.image_features import pretrained_extractor
from kmcl.posthoc.frozen_gp import main_directions


class Images(NamedTuple):
    """directions: N x D unit vectors, as `FrozenFeatureGP` compares them, on the main directions of train"""

    directions: Tensor
    targets: npt.NDArray[np.int8]


def read_splits(
    data: str, splits: tuple[str, ...], image_size: int, keep: Path
) -> tuple[tuple[str, ...], dict[str, Images]]:
    """The labels, and the images of each split, `train` among them.

    keep: folder for the statistics; those that are there are not computed again
    """
    dataset = open_dataset(data)
    keep.mkdir(parents=True, exist_ok=True)
    found = {}
    for name in splits:
        file = keep / f"{name}.npz"
        if not file.is_file():
            extractor = pretrained_extractor(Console(stderr=True), image_size=image_size)
            described = extractor.describe(dataset.splits[name], name)
            targets = dataset.splits[name].targets[described.rows]
            np.savez(file, s=described.statistics, w=described.widths, t=targets)
        found[name] = np.load(file)
    train = torch.from_numpy(found["train"]["s"])
    centre, projection = main_directions(train, found["train"]["w"].tolist())

    def images(arrays: dict[str, npt.NDArray[np.float32]]) -> Images:
        projected = (torch.from_numpy(arrays["s"]) - centre) @ projection
        return Images(nn.functional.normalize(projected, dim=1), arrays["t"].astype(np.int8))

    return dataset.labels, {name: images(arrays) for name, arrays in found.items()}
