"""Co-occurrence of the labels in the training targets, for the methods that start from it.

A head that needs it has a method `set_label_statistics`, called once before training. What the head computes
from it is stored in buffers, saved with the model: loading a model needs no training data.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from kmcl.kernels.targets import read_targets
from kmcl.shapes import Float


class LabelStatistics(NamedTuple):
    """labels: their names. conditional[i, j]: how often label j is present if i is."""

    labels: tuple[str, ...]
    conditional: Float[Tensor, "L L"]


@runtime_checkable
class UsesLabelStatistics(Protocol):
    """A head that needs the label statistics before training."""

    def set_label_statistics(self, statistics: LabelStatistics) -> None: ...


def set_label_statistics(head: nn.Module, labels: tuple[str, ...], targets: Any) -> None:
    """Give a head the statistics of the training targets (B x L: 1, 0, unknown -1), if it uses them."""
    if isinstance(head, UsesLabelStatistics):
        conditional = conditional_frequencies(torch.as_tensor(targets))
        head.set_label_statistics(LabelStatistics(labels, conditional))


def conditional_frequencies(targets: Tensor) -> Float[Tensor, "L L"]:
    """P(j | i) = images with i and j / images with i of which j is known; 0 where there are none."""
    annotation = read_targets(targets)
    positive, known = annotation.positive.double(), annotation.known.double()
    together, seen = positive.T @ positive, positive.T @ known
    return (together / seen.clamp(min=1)).float()


def reweighted_graph(
    conditional: Float[Tensor, "L L"], threshold: float, neighbour_weight: float
) -> Float[Tensor, "L L"]:
    """ML-GCN's label graph: rare co-occurrences are dropped, and neighbours share a fixed weight.

        A_ij = 1 if P(j | i) >= τ and i ≠ j, else 0
        A'_ij = p A_ij / Σ_k A_ik for i ≠ j,   A'_ii = 1 - p

    τ: threshold. p: neighbour_weight, the total weight of a label's neighbours. A label without neighbours
    keeps all its weight, A'_ii = 1, so every row adds up to 1.
    """
    is_self = torch.eye(len(conditional), dtype=torch.bool, device=conditional.device)
    is_neighbour = (conditional >= threshold) & ~is_self
    count = is_neighbour.sum(dim=1, keepdim=True)
    own = torch.where(count > 0, 1 - neighbour_weight, 1.0)
    return torch.where(is_self, own, neighbour_weight * is_neighbour / count.clamp(min=1))
