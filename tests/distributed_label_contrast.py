"""What each process of `methods/test_label_contrast.py` runs; a module, so that processes can import it."""

from __future__ import annotations

import torch
from torch import distributed

from kmcl.losses import ObjectiveSettings
from kmcl.methods import MethodOptions, find_method
from kmcl.methods.label_contrast import ProjectedHead
from kmcl.models.encoder import EncoderFeatures, build_encoder
from random_inputs import make_targets

WORLD_SIZE = 2
BATCH_SIZE, NUM_LABELS = 8, 5
OPTIONS = MethodOptions(objective=ObjectiveSettings(classification_weight=0.7), embedding_dim=6)


def make_problem() -> tuple[ProjectedHead, EncoderFeatures, torch.Tensor]:
    torch.manual_seed(0)
    encoder = build_encoder("test_resnet", image_size=32)
    head = ProjectedHead(encoder, NUM_LABELS, OPTIONS).double()
    pooled = torch.randn(BATCH_SIZE, encoder.feature_dim, dtype=torch.float64)
    targets = make_targets(BATCH_SIZE, NUM_LABELS, unknown=0.1)
    targets[1] = -1  # the two halves count 3 and 4 images, and different numbers of labels
    return head, EncoderFeatures(pooled, pooled.unsqueeze(1)), targets


def run_process(rank: int, folder: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD_SIZE
    )
    head, features, targets = make_problem()
    replica = torch.nn.parallel.DistributedDataParallel(LossOf(head))
    share = BATCH_SIZE // WORLD_SIZE
    mine = slice(rank * share, (rank + 1) * share)
    loss = replica(EncoderFeatures(features.pooled[mine], features.spatial[mine]), targets[mine])
    loss.backward()
    distributed.all_reduce(mean := loss.detach().clone())
    if rank == 0:
        gradients = {name: p.grad for name, p in head.named_parameters()}
        torch.save((mean / WORLD_SIZE, gradients), f"{folder}/result.pt")
    distributed.destroy_process_group()


class LossOf(torch.nn.Module):
    def __init__(self, head: ProjectedHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: EncoderFeatures, targets: torch.Tensor) -> torch.Tensor:
        return find_method("mulsupcon").loss(self.head(features), targets, OPTIONS).total
