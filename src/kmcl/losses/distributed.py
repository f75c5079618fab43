"""Anchors of this process against the images of all processes: the contrastive loss of the global batch.

Each process computes the loss of its own anchors; the mean of these over processes, which is what
DistributedDataParallel's averaged gradients follow, is exactly the loss of the whole batch.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

from kmcl.kernels import KernelMixture
from kmcl.kernels.targets import Targets, read_targets
from kmcl.losses.contrastive import Candidates


def is_distributed() -> bool:
    """Whether several processes train together."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def gather_candidates(mixture: KernelMixture, targets: Tensor | Targets) -> Candidates:
    """The kernels and targets of every process, in rank order, with gradients back to their own."""
    gathered = replace(
        mixture,
        logits=gather_rows(mixture.logits.detach()),  # the contrastive loss does not read them
        means=gather_rows(mixture.means),
        variances=gather_rows(mixture.variances),
    )
    first_anchor = distributed.get_rank() * len(targets)
    return Candidates(gathered, gather_targets(read_targets(targets)), first_anchor)


def gather_targets(targets: Targets) -> Targets:
    """The targets of every process, in rank order, in one exchange."""
    gathered = gather_rows(torch.stack([targets.positive, targets.negative], dim=1))
    return Targets(gathered[:, 0], gathered[:, 1])


def gather_rows(rows: Tensor) -> Tensor:
    """The rows of every process, in rank order; gradients flow back to the process a row is from.

    Every process must call it, with the same number of rows.
    """
    gathered: Tensor = _GatherRows.apply(rows)  # type: ignore[no-untyped-call]
    return gathered


def images_per_process(targets: Tensor | Targets) -> Tensor | None:
    """The mean number of images with a known label over processes, or None where there is only one.

    Each process divides by it, so that the mean over processes is the mean over all images.
    """
    if not is_distributed():
        return None
    total = read_targets(targets).num_images.float()
    distributed.all_reduce(total)
    return total / distributed.get_world_size()


class _GatherRows(torch.autograd.Function):
    """Not torch.distributed.nn's: its backward pass misreads gradients that are not contiguous.

    First order only: across processes, second-order gradients end in torch's message that says so.
    """

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        rows = rows.contiguous()
        parts = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, rows)
        return torch.cat(parts)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total.chunk(distributed.get_world_size())[distributed.get_rank()]
