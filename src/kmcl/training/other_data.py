"""A trained model on data that it was not trained with: labels are matched by their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from kmcl.data import Dataset, open_dataset
from kmcl.data.loading import LoaderSettings, make_eval_loader
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.unfamiliarity import FALSE_ALARM_RATE, is_unfamiliar
from kmcl.models.classifier import Classifier
from kmcl.models.folder import load_model
from kmcl.progress import WorkProgress
from kmcl.training.inference import predict_split

ALL_SPLITS = "all"


@dataclass(frozen=True)
class OtherPredictions:
    """Predictions of other data.

    predictions: of the labels that the model and the data have, in the model's order
    unknown:     labels of the data that the model does not have
    missing:     labels of the model that the data do not have
    """

    predictions: Predictions
    unknown: tuple[str, ...]
    missing: tuple[str, ...]

    def notices(self) -> list[str]:
        """A sentence about the labels that are left out, for each kind, and one about unfamiliar images."""
        found = []
        if self.unknown:
            found.append(f"labels of the data that the model does not know: {', '.join(self.unknown)}")
        if self.missing:
            found.append(f"labels of the model that the data do not have: {', '.join(self.missing)}")
        notices = [f"left out, {sentence}" for sentence in found]
        if self.predictions.unfamiliarity is not None:
            share = float(is_unfamiliar(self.predictions.unfamiliarity).mean())
            expected = f"of images like those of val, {100 * FALSE_ALARM_RATE:g} % are"
            notices.append(f"{100 * share:.1f} % of the images are unlike the training images; {expected}")
        return notices


def predict_other_data(
    model: Path,
    data: Any,
    options: Mapping[str, Any] | None = None,
    split: str = "test",
    *,
    console: Console | None = None,
    encoder: nn.Module | None = None,
) -> OtherPredictions:
    """Predict a split of any dataset, or all its splits, with the model in a folder.

    data:    a dataset spec, a `Dataset` or a DataFrame
    options: of the dataset's reader
    split:   train, val, test or all
    encoder: the user's own module, where the model has one
    """
    dataset = open_dataset(data, **(options or {}))
    classifier, description = load_model(model, encoder)
    shared = tuple(label for label in description.labels if label in dataset.labels)
    if not shared:
        raise InputError(
            f"{dataset.name}: has none of the model's labels: {', '.join(description.labels)}; "
            f"its own are {', '.join(dataset.labels)}"
        )
    classifier.to("cuda" if torch.cuda.is_available() else "cpu")
    found = [
        _predict(classifier, description.labels, dataset, name, console or Console(quiet=True))
        for name in _split_names(dataset, split)
    ]
    return OtherPredictions(
        Predictions.concat(found).with_labels(shared),
        tuple(label for label in dataset.labels if label not in description.labels),
        tuple(label for label in description.labels if label not in shared),
    )


def _split_names(dataset: Dataset, split: str) -> list[str]:
    if split == ALL_SPLITS:
        return list(dataset.splits)
    if split not in dataset.splits:
        known = ", ".join([*dataset.splits, ALL_SPLITS])
        raise InputError(f"{dataset.name}: has no split {split!r}; there are {known}")
    return [split]


def _predict(
    classifier: Classifier, labels: tuple[str, ...], dataset: Dataset, name: str, console: Console
) -> Predictions:
    split = dataset.splits[name]
    matched = replace(
        split,
        targets=_matched(split.targets, dataset.labels, labels, missing=0),
        ignored=None if split.ignored is None else _matched(split.ignored, dataset.labels, labels, False),
    )
    loader = make_eval_loader(matched, LoaderSettings(image_size=classifier.encoder.input_size))
    with WorkProgress(console, f"predictions of {name}", len(split)) as progress:
        progress.start(len(split))
        return predict_split(classifier, labels, matched, loader, on_progress=progress.advance)


def _matched(values: Any, theirs: tuple[str, ...], ours: tuple[str, ...], missing: Any) -> Any:
    """Columns of the data in the model's order; `missing` where the data have no such label."""
    columns = np.full((len(values), len(ours)), missing, dtype=values.dtype)
    for place, label in enumerate(ours):
        if label in theirs:
            columns[:, place] = values[:, theirs.index(label)]
    return columns
