"""Mixtures and targets to test with."""

from __future__ import annotations

import torch

from kmcl.kernels import KernelMixture, kernel_family


def make_mixture(
    kernel: str, batch_size: int, num_labels: int, feature_dim: int, *, seed: int = 0, dtype=torch.float64
) -> KernelMixture:
    """A mixture whose similarities lie well inside (0, 1)."""
    generator = torch.Generator().manual_seed(seed)
    family = kernel_family(kernel)
    mean_shape = (batch_size, *family.mean_shape(num_labels, feature_dim))
    variance_shape = (batch_size, *family.variance_shape(num_labels, feature_dim))
    return KernelMixture(
        torch.randn(batch_size, num_labels, generator=generator, dtype=dtype),
        torch.randn(mean_shape, generator=generator, dtype=dtype),
        1 + 2 * torch.rand(variance_shape, generator=generator, dtype=dtype),
        feature_dim,
        kernel,
    )


def make_targets(batch_size: int, num_labels: int, *, rate: float = 0.4, unknown: float = 0.0, seed: int = 0):
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(batch_size, num_labels, generator=generator) < rate).to(torch.int64)
    hidden = torch.rand(batch_size, num_labels, generator=generator) < unknown
    return targets.masked_fill(hidden, -1)


# Batches in which a term, a row or a column has nothing to work with.
DEGENERATE_TARGETS = {
    "no shared label": torch.eye(4, dtype=torch.int64),
    "no label at all": torch.zeros(3, 4, dtype=torch.int64),
    "an empty row": torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 0]]),
    "all labels": torch.ones(3, 4, dtype=torch.int64),
    "a batch of one": torch.tensor([[1, 0, 1, 0]]),
    "a batch of two": torch.tensor([[1, 0, 1, 0], [1, 1, 0, 0]]),
    "everything unknown": torch.full((3, 4), -1),
    "an unknown row": torch.tensor([[1, 0, 1, 0], [-1, -1, -1, -1], [1, 1, 0, 0]]),
    "positives and unknowns only": torch.tensor([[1, -1, -1, -1], [1, 1, -1, -1], [-1, 1, -1, 1]]),
}
