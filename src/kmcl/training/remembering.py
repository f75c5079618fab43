"""KMCL's memory at the end of a training: the training images' kernels, and how much they count, from val."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from kmcl.evaluation.predictions import Predictions
from kmcl.evaluation.ranking import mean_average_precision
from kmcl.models.kernel_memory import KernelMemory

VARIANCES = (0.0125, 0.0175, 0.025, 0.0375)
WEIGHTS = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)


def make_memory(train: Predictions, val: Predictions, memory_size: int, seed: int) -> KernelMemory | None:
    """A memory of at most `memory_size` training images, drawn at random where there are more.

    Variance and weight are those of `VARIANCES` and `WEIGHTS` with the best val mAP; None where no memory at
    all is at least as good. Both predictions carry features; val's scores are those without a memory.
    It is a choice among 29 on val, which therefore flatters val a little; test is not looked at.
    """
    if train.features is None or val.features is None or len(train) == 0:
        return None
    rows = np.arange(len(train))
    if len(rows) > memory_size:
        rows = np.sort(np.random.default_rng(seed).permutation(rows)[:memory_size])
    features = torch.from_numpy(train.features[rows])
    memory = KernelMemory(len(rows), features.shape[1], len(train.labels))
    memory.remember(features, torch.from_numpy(train.targets[rows]))

    logits = torch.logit(torch.from_numpy(val.scores).double(), eps=1e-12)
    val_features = torch.from_numpy(val.features)
    best_map, best = _map_of(val, logits), None
    for variance in VARIANCES:
        memory.set_scale(variance, 1.0)
        evidence = memory(val_features)
        for weight in WEIGHTS:
            found = _map_of(val, logits + weight * evidence)
            if found > best_map:
                best_map, best = found, (variance, weight)
    if best is None:
        return None
    memory.set_scale(*best)
    return memory


def _map_of(val: Predictions, logits: Tensor) -> float:
    return mean_average_precision(replace(val, scores=logits.sigmoid().float().numpy()))
