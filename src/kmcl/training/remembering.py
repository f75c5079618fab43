"""What KMCL remembers when training ends: the training images' kernels, and how much they count, from val."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.models.kernel_memory import KernelMemory
from kmcl.models.recollection import Recollection

VARIANCES = (0.0125, 0.0175, 0.025, 0.0375)
WEIGHTS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
SILENT_VARIANCE = 0.025
"""Of a memory that has no vote."""
RECOLLECTION_WEIGHTS = (0.25, 0.5, 1.0)


def weigh_recollection(recollection: Recollection, val: Predictions, statistics: Tensor) -> Predictions:
    """Set the weight, one of `RECOLLECTION_WEIGHTS` or 0, with the best val mAP.

    `statistics` are what it sees of val's images. Returns val with the scores that it leads to.
    """
    recollection.set_weight(1.0)
    evidence = recollection(statistics).double().cpu()
    logits = _logits_of(val)
    weights = (0.0, *RECOLLECTION_WEIGHTS)
    scored = [_with_logits(val, logits + weight * evidence) for weight in weights]
    best = int(np.argmax([mean_average_precision(predictions) for predictions in scored]))
    recollection.set_weight(weights[best])
    return scored[best]


def draw_rows(num_images: int, size: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Which images are remembered: all, or `size` at random where there are more."""
    rows = np.arange(num_images)
    if num_images > size:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:size])
    return rows


def make_memory(train: Predictions, val: Predictions, memory_size: int, seed: int) -> KernelMemory:
    """A memory of at most `memory_size` training images, drawn at random where there are more.

    Variance and weight are those of `VARIANCES` and `WEIGHTS` with the best val mAP; where no vote at all is
    at least as good, the weight is 0 and the memory there to tell which labels go together. Both predictions
    carry features; val's scores are those without a memory. It is a choice among 29 on val, which therefore
    flatters val a little; test is not looked at.
    """
    if train.features is None or val.features is None:
        raise ValueError("a memory is made of features, and there are none")
    rows = draw_rows(len(train), memory_size, seed)
    features = torch.from_numpy(train.features[rows])
    memory = KernelMemory(len(rows), features.shape[1], len(train.labels))
    memory.remember(features, torch.from_numpy(train.targets[rows]))

    logits = _logits_of(val)
    val_features = torch.from_numpy(val.features)
    best_map, best = mean_average_precision(val), (SILENT_VARIANCE, 0.0)
    for variance in VARIANCES:
        memory.set_scale(variance, 1.0)
        evidence = memory(val_features)
        for weight in WEIGHTS:
            found = mean_average_precision(_with_logits(val, logits + weight * evidence))
            if found > best_map:
                best_map, best = found, (variance, weight)
    memory.set_scale(*best)
    return memory


def _logits_of(predictions: Predictions) -> Tensor:
    return torch.logit(torch.from_numpy(predictions.scores).double(), eps=1e-12)


def _with_logits(predictions: Predictions, logits: Tensor) -> Predictions:
    return replace(predictions, scores=logits.sigmoid().float().numpy())
