"""Anchors of this process against the images of all processes: the contrastive loss of the global batch.

Each process computes the loss of its own anchors; the mean of these over processes, which is what
DistributedDataParallel's averaged gradients follow, is exactly the loss of the whole batch.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, distributed
from torch.distributed.nn import functional as distributed_functional

from kmcl.data.targets import read_targets
from kmcl.kernels import KernelMixture
from kmcl.losses.contrastive import Candidates


def is_distributed() -> bool:
    """Whether several processes train together."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def gather_candidates(mixture: KernelMixture, targets: Tensor) -> Candidates:
    """The kernels and targets of every process, in rank order, with gradients back to where they came from.

    Every process must call it, with the same number of images.
    """
    gathered_targets = [torch.empty_like(targets) for _ in range(distributed.get_world_size())]
    distributed.all_gather(gathered_targets, targets.contiguous())
    gathered = replace(
        mixture,
        logits=_gather_rows(mixture.logits.detach()),  # the contrastive loss does not read them
        means=_gather_rows(mixture.means),
        variances=_gather_rows(mixture.variances),
    )
    return Candidates(
        gathered, torch.cat(gathered_targets), first_anchor=distributed.get_rank() * len(targets)
    )


def images_per_process(targets: Tensor) -> float | None:
    """The mean number of images with a known label over processes, or None where there is only one.

    Each process divides by it, so that the mean over processes is the mean over all images.
    """
    if not is_distributed():
        return None
    total = torch.tensor(float(read_targets(targets).num_images), device=targets.device)
    distributed.all_reduce(total)
    return float(total) / distributed.get_world_size()


def _gather_rows(rows: Tensor) -> Tensor:
    return torch.cat(distributed_functional.all_gather(rows.contiguous()))  # type: ignore[no-untyped-call]
