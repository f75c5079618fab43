"""Batches of feature vectors, in the place of images."""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import Dataset as TorchDataset

from kmcl.data.batches import Batch, Delivery
from kmcl.data.dataset import Split
from kmcl.data.sampling import BatchPlan
from kmcl.data.vectors import take_vectors


class VectorBatchMaker(TorchDataset[Delivery]):
    """Maps the plan of a batch to a batch whose `images` are feature vectors, B x D float32."""

    def __init__(self, split: Split) -> None:
        self._images = split.images
        self._targets = np.asarray(split.targets, dtype=np.int8)

    def __getitem__(self, plan: BatchPlan) -> Delivery:
        vectors = torch.from_numpy(take_vectors(self._images, plan.indices))
        targets = torch.from_numpy(self._targets[plan.indices])
        return Delivery(Batch(vectors, targets, torch.from_numpy(plan.indices.copy())), {})
