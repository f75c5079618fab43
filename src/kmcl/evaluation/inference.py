"""Running a classifier over a split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from kmcl.data.dataset import Split
from kmcl.data.loading import BatchLoader
from kmcl.evaluation.predictions import Predictions
from kmcl.models.classifier import Classifier, HeadOutput, RowsClassifier


@torch.inference_mode()
def predict_split(
    classifier: Classifier | RowsClassifier,
    labels: tuple[str, ...],
    split: Split,
    loader: BatchLoader,
    *,
    on_progress: Callable[[int], object] | None = None,
    on_output: Callable[[HeadOutput], object] | None = None,
) -> Predictions:
    """Scores, sigma and features of every image of a split, in its order, on the classifier's device.

    Images that could not be read (see the loader's `bad_images`) are missing from the result.
    `on_progress` is called with the number of images done since its last call, `on_output` with each batch's
    output.
    """
    classifier.eval()
    device = next(classifier.parameters()).device
    indices, scores, sigmas, features = [], [], [], []
    for batch in loader:
        output = classifier(batch.images.to(device))
        indices.append(batch.indices)
        scores.append(output.probabilities.float().cpu())
        features.append(output.features.float().cpu())
        if output.sigma is not None:
            sigmas.append(output.sigma.float().cpu())
        if on_output is not None:
            on_output(output)
        if on_progress is not None:
            on_progress(len(batch.indices))
    rows = torch.cat(indices).numpy() if indices else np.empty(0, dtype=np.int64)
    num_labels = len(labels)
    return Predictions(
        labels=labels,
        names=tuple(split.images.name(int(row)) for row in rows),
        scores=torch.cat(scores).numpy() if scores else np.empty((0, num_labels), dtype=np.float32),
        targets=split.targets[rows],
        ignored=None if split.ignored is None else split.ignored[rows],
        sigma=torch.cat(sigmas).numpy() if sigmas else None,
        features=torch.cat(features).numpy() if features else None,
    )
