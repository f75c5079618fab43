"""The problem of `methods/test_label_contrast.py`; a module, so that processes can import it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.encoders import EncoderFeatures
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.methods import find_method
from kmcl.methods.mulsupcon import ProjectedHead
from kmcl.options.methods import MulSupConOptions
from random_inputs import make_targets
from two_processes import Problem

BATCH_SIZE, NUM_LABELS = 8, 5
OPTIONS = MulSupConOptions(classification_weight=0.7, contrastive_weight=0.3, embedding_dim=6)


class Losses(nn.Module):
    def __init__(self, head: ProjectedHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, pooled: Tensor, targets: Tensor) -> Tensor:
        features = EncoderFeatures(pooled, pooled.unsqueeze(1))
        return find_method("mulsupcon").compute_loss(self.head(features), targets, OPTIONS).total.unsqueeze(0)


def make_problem() -> Problem:
    torch.manual_seed(0)
    encoder = build_encoder("test_resnet", image_size=32)
    head = ProjectedHead(encoder, NUM_LABELS, OPTIONS).double()
    pooled = torch.randn(BATCH_SIZE, encoder.feature_dim, dtype=torch.float64)
    targets = make_targets(BATCH_SIZE, NUM_LABELS, unknown=0.1)
    targets[1] = -1  # the two halves count 3 and 4 images, and different numbers of labels
    return Problem(Losses(head), (pooled, targets))
