"""The dataset of a run: what its settings name, with the part of train that they want."""

from __future__ import annotations

from dataclasses import replace

from kmcl.data import Dataset, open_dataset
from kmcl.data.selection import take_fraction
from kmcl.data.target_pairs import has_any
from kmcl.errors import InputError
from kmcl.runs.guarantee import refuse_impossible
from kmcl.runs.settings import TrainingSettings

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
