"""The problem of `losses/test_distributed.py`; a module, so that processes can import it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.losses import kmcl_objective
from kmcl.methods.kmcl import KernelMixtureHead
from random_inputs import make_targets
from two_processes import Problem

BATCH_SIZE, NUM_LABELS, FEATURE_DIM = 8, 5, 6


class Losses(nn.Module):
    def __init__(self, kernel: str) -> None:
        super().__init__()
        self.head = KernelMixtureHead(FEATURE_DIM, NUM_LABELS, kernel).double()

    def forward(self, features: Tensor, targets: Tensor) -> Tensor:
        return torch.stack(kmcl_objective(features, self.head(features), targets))


def make_problem(kernel: str) -> Problem:
    torch.manual_seed(0)
    features = 0.3 * torch.rand(BATCH_SIZE, FEATURE_DIM, dtype=torch.float64)
    targets = make_targets(BATCH_SIZE, NUM_LABELS)
    targets[1] = -1  # the two halves count 3 and 4 images
    return Problem(Losses(kernel), (features, targets))
