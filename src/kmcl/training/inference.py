"""Running a classifier over a split."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from kmcl.data.dataset import Split
from kmcl.data.loading import BatchLoader
from kmcl.encoders import EncoderFeatures
from kmcl.evaluation.predictions import Predictions
from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier


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
