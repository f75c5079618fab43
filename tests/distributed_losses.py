"""What each process of `losses/test_distributed.py` runs; a module, so that processes can import it."""

from __future__ import annotations

import torch
from torch import distributed

from kmcl.losses import kmcl_objective
from kmcl.models import KernelMixtureHead
from random_inputs import make_targets

WORLD_SIZE = 2
BATCH_SIZE, NUM_LABELS, FEATURE_DIM = 8, 5, 6


def make_problem(kernel: str) -> tuple[KernelMixtureHead, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    head = KernelMixtureHead(FEATURE_DIM, NUM_LABELS, kernel).double()
    features = 0.3 * torch.rand(BATCH_SIZE, FEATURE_DIM, dtype=torch.float64)
    targets = make_targets(BATCH_SIZE, NUM_LABELS)
    targets[1] = -1  # the two halves count 3 and 4 images
    return head, features, targets


def run_process(rank: int, folder: str, kernel: str) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous-{kernel}", rank=rank, world_size=WORLD_SIZE
    )
    head, features, targets = make_problem(kernel)
    replica = torch.nn.parallel.DistributedDataParallel(LossOf(head))
    share = BATCH_SIZE // WORLD_SIZE
    mine = slice(rank * share, (rank + 1) * share)
    terms = replica(features[mine], targets[mine])
    terms[-1].backward()
    distributed.all_reduce(mean := terms.detach().clone())
    if rank == 0:
        gradients = {name: p.grad for name, p in head.named_parameters()}
        torch.save((mean / WORLD_SIZE, gradients), f"{folder}/{kernel}.pt")
    distributed.destroy_process_group()


class LossOf(torch.nn.Module):
    def __init__(self, head: KernelMixtureHead) -> None:
        super().__init__()
        self.head = head

    def forward(self, features: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.stack(kmcl_objective(features, self.head(features), targets))
