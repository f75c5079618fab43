"""Unit vectors of images from a pretrained encoder's feature maps, computed once and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MOST_ROWS = 1000
"""Of train, that the main directions are found on."""


class Images(NamedTuple):
    """directions: N x D unit vectors, nearly as `FrozenFeatureGP` makes them, on main directions of train"""

    directions: npt.NDArray[np.float32]
    targets: npt.NDArray[np.int8]


def read_splits(
    data: str, splits: tuple[str, ...], image_size: int, keep: Path, num_directions: int
) -> tuple[list[str], dict[str, Images]]:
    """The labels, and the images of each split.

    keep: folder for the vectors; those that are there are not computed again
    """
    files = {name: keep / f"{name}-{num_directions}.npz" for name in splits}
    if not all(file.is_file() for file in files.values()):
        _write_vectors(data, files, image_size, keep, num_directions)
    found = {}
    for name, file in files.items():
        with np.load(file) as arrays:
            found[name] = Images(arrays["unit"], arrays["targets"])
    return json.loads((keep / "labels.json").read_text()), found


def _write_vectors(
    data: str, files: dict[str, Path], image_size: int, keep: Path, num_directions: int
) -> None:
    statistics = {name: _statistics(data, name, image_size, keep) for name in {"train", *files}}
    train = statistics["train"]
    some = train["s"][np.linspace(0, len(train["s"]) - 1, MOST_ROWS, dtype=int)]
    centre, deviations = some.mean(axis=0), some.std(axis=0)
    shares = np.concatenate([np.full(width, width**-0.5) for width in train["w"].tolist()])
    scale = np.where(deviations > 1e-6, shares / np.maximum(deviations, 1e-6), 0).astype(np.float32)
    projection = scale[:, None] * _main_directions((some - centre) * scale, num_directions)
    for name, file in files.items():
        projected = (statistics[name]["s"] - centre) @ projection
        unit = projected / np.linalg.norm(projected, axis=1, keepdims=True)
        np.savez(file, unit=unit.astype(np.float32), targets=statistics[name]["t"])


def _main_directions(centred: npt.NDArray[np.float32], number: int) -> npt.NDArray[np.float32]:
    """By a randomised range finder with one power iteration."""
    rng = np.random.default_rng(0)
    drawn = rng.normal(size=(centred.shape[1], number + 16)).astype(np.float32)
    for _ in range(2):
        drawn = centred.T @ np.linalg.qr(centred @ drawn)[0]
    values, vectors = np.linalg.eigh(drawn.T @ drawn)
    main = drawn @ vectors[:, ::-1][:, :number]
    scaled: npt.NDArray[np.float32] = main / np.sqrt(values[::-1][:number])
    return scaled


def _statistics(data: str, name: str, image_size: int, keep: Path) -> dict[str, Any]:
    file = keep / f"{name}.npz"
    if not file.is_file():
        from rich.console import Console

        from kmcl.data import open_dataset
        from kmcl.labelling.image_features import pretrained_extractor

        dataset = open_dataset(data)
        keep.mkdir(parents=True, exist_ok=True)
        (keep / "labels.json").write_text(json.dumps(dataset.labels))
        described = pretrained_extractor(Console(stderr=True), image_size=image_size).describe(
            dataset.splits[name], name
        )
        targets = dataset.splits[name].targets[described.rows]
        np.savez(file, s=described.statistics, w=described.widths, t=targets)
    with np.load(file) as arrays:
        return {key: arrays[key] for key in ("s", "w", "t")}
