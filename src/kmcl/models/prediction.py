"""Running a classifier over a split."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from torch import nn

from kmcl.data import Dataset, open_dataset
from kmcl.data.dataset import Split
from kmcl.data.loading import BatchLoader, LoaderSettings, make_eval_loader
from kmcl.encoders import EncoderFeatures
from kmcl.errors import InputError
from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.unfamiliarity import FALSE_ALARM_RATE, is_unfamiliar
from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier
from kmcl.models.folder import load_model
from kmcl.progress import WorkProgress


@torch.inference_mode()
def predict_split(
    classifier: Classifier,
    labels: tuple[str, ...],
    split: Split,
    loader: BatchLoader,
    *,
    from_rows: bool = False,
    on_progress: Callable[[int], object] | None = None,
    on_batch: Callable[[EncoderFeatures, HeadOutput], object] | None = None,
) -> Predictions:
    """Scores, sigma, features, their summary and unfamiliarity of every image of a split, in its order.

    The images are scored on the classifier's device.

    from_rows:   the loader yields rows of the encoder's frozen stages instead of images
    on_progress: called with the number of images done since its last call
    on_batch:    called with the outputs of the encoder and the head for each batch

    Images that could not be read (see the loader's `bad_images`) are missing from the result.
    """
    classifier.eval()
    device = next(classifier.parameters()).device
    indices, scores, sigmas, features, unfamiliarity, summaries = [], [], [], [], [], []
    for batch in loader:
        images = batch.images.to(device)
        encoded = classifier.encode_rows(images) if from_rows else classifier.encode(images)
        output = classifier.score(encoded)
        indices.append(batch.indices)
        scores.append(output.probabilities.float().cpu())
        features.append(output.features.float().cpu())
        if output.sigma is not None:
            sigmas.append(output.sigma.float().cpu())
        if output.unfamiliarity is not None:
            unfamiliarity.append(output.unfamiliarity.float().cpu())
        if output.feature_summary is not None:
            summaries.append(output.feature_summary.float().cpu())
        if on_batch is not None:
            on_batch(encoded, output)
        if on_progress is not None:
            on_progress(len(batch.indices))
    rows = torch.cat(indices).numpy() if indices else np.empty(0, dtype=np.int64)
    return Predictions.of_split(
        labels,
        split,
        torch.cat(scores).numpy() if scores else np.empty((0, len(labels)), dtype=np.float32),
        rows,
        sigma=torch.cat(sigmas).numpy() if sigmas else None,
        features=torch.cat(features).numpy() if features else None,
        unfamiliarity=torch.cat(unfamiliarity).numpy() if unfamiliarity else None,
        feature_summary=torch.cat(summaries).numpy() if summaries else None,
    )


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
