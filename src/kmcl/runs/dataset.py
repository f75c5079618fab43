"""The dataset of a run: what its settings name, with the part of train that they want."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from kmcl.data import Dataset, open_dataset
from kmcl.data.readers.registry import READERS
from kmcl.data.selection import take_fraction
from kmcl.data.spec import DatasetSpec, parse_dataset_spec
from kmcl.data.target_pairs import has_any
from kmcl.errors import InputError
from kmcl.runs.guarantee import refuse_impossible
from kmcl.runs.settings import TrainingSettings
from kmcl.storage.s3 import s3_location

IN_MEMORY = "memory:"
"""Starts the dataset spec of a run that was given a `Dataset` object."""


def open_run_dataset(settings: TrainingSettings, dataset: Dataset | None = None) -> Dataset:
    """The dataset that the settings name, or the one given, with the part of train that the settings want."""
    return take_part(settings, open_whole(settings, dataset))


def open_whole(settings: TrainingSettings, dataset: Dataset | None = None) -> Dataset:
    """The dataset that the settings name, or the one given."""
    data = settings.data
    if dataset is None and data.spec.startswith(IN_MEMORY):
        raise InputError(
            f"{data.spec.removeprefix(IN_MEMORY)}: the run was trained on a Dataset in memory; continue it "
            "in Python with kmcl.resume(run, data=dataset)"
        )
    return dataset or open_dataset(data.spec, **data.options)


def take_part(settings: TrainingSettings, dataset: Dataset) -> Dataset:
    """The dataset with the part of train that the settings want; refused without images to train on."""
    data = settings.data
    if "train" not in dataset.splits or len(dataset.splits["train"]) == 0:
        raise InputError(f"{dataset.name}: has no images to train on (no train split)")
    if data.train_fraction < 1:
        part = take_fraction(dataset.splits["train"], data.train_fraction, settings.optimisation.seed)
        dataset = replace(dataset, splits=dataset.splits | {"train": part})
    if not has_any(dataset.splits["train"].targets):
        raise InputError(f"{dataset.name}: no image of the train split carries any label")
    wish = settings.evaluation.guarantee_wish
    if wish is not None:
        refuse_impossible(wish, dataset)
    return dataset


def absolute_paths(settings: TrainingSettings) -> dict[str, Any]:
    """Absolute paths of the data, of their cache and of a file of weights, as changes of the settings."""
    changes: dict[str, Any] = {"data": _absolute_spec(settings.data.spec)}
    if settings.data.cache_dir is not None:
        changes["cache_dir"] = _absolute(settings.data.cache_dir)
    weights = settings.encoder.weights
    if weights is not None and Path(weights).is_file():
        changes["weights"] = _absolute(Path(weights))
    return changes


def _absolute_spec(spec: str) -> str:
    if spec.startswith(IN_MEMORY):
        return spec
    found = parse_dataset_spec(spec, READERS)
    if found.kind == "hf" and found.location is not None and not os.path.exists(found.location):
        return str(found)  # a name of the hub
    if found.location is not None and s3_location(found.location) is not None:
        return str(found)
    return str(DatasetSpec(found.kind, found.location and Path(_absolute(found.location))))


def _absolute(path: Path) -> str:
    """Without resolving links, which a user may have set for this purpose."""
    return os.path.abspath(path)
