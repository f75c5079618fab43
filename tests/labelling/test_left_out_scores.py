"""Left-out scores: equal to fits without the image or its group, and never influenced by its own label."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kmcl.labelling import left_out_scores as module
from kmcl.labelling.left_out_scores import (
    inverse_covariance,
    left_out_means,
    left_out_scores,
    standardised,
)

VARIANCE, NOISE = 0.2, 0.5


def unit_vectors(num: int, dim: int = 6, seed: int = 0) -> torch.Tensor:
    drawn = torch.randn(num, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(drawn, dim=1)


def mean_without(directions: torch.Tensor, observations: torch.Tensor, left_out: list[int]) -> torch.Tensor:
    """By a fit of its own on the others."""
    kept = [row for row in range(len(directions)) if row not in left_out]

    def similarity(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return torch.exp((first @ second.T - 1) / (4 * VARIANCE))

    inside = similarity(directions[kept], directions[kept]) + NOISE * torch.eye(len(kept))
    across = similarity(directions[left_out], directions[kept])
    return across @ torch.linalg.solve(inside, observations[kept])


@pytest.mark.parametrize("units", [list(range(12)), [0, 0, 1, 2, 2, 2, 3, 4, 5, 6, 7, 8]])
def test_means_equal_those_of_fits_without_the_unit(units: list[int]) -> None:
    directions = unit_vectors(12)
    observations = torch.randn(12, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    precision = inverse_covariance(directions, VARIANCE, NOISE)
    means = left_out_means(precision, observations, np.array(units))
    for unit in set(units):
        rows = [row for row, of in enumerate(units) if of == unit]
        torch.testing.assert_close(means[rows], mean_without(directions, observations, rows))


def test_unknown_labels_are_observed_as_the_mean() -> None:
    targets = np.array([[1, -1], [0, 1], [0, -1], [-1, 0]], dtype=np.int8)
    values = standardised(targets)
    assert values[3, 0] == 0
    assert values[[0, 2], 1].abs().sum() == 0
    torch.testing.assert_close(values[:3, 0].sum(), torch.tensor(0.0), atol=1e-6, rtol=0)


def test_a_group_does_not_judge_its_own_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two identical images of one group: the label of one says nothing about the other."""
    directions = unit_vectors(40, seed=2).float().numpy()
    directions[1] = directions[0]
    targets = np.zeros((40, 1), dtype=np.int8)
    targets[1] = 1
    targets[20:30] = 1
    groups = np.array([str(max(1, row)) for row in range(40)])
    monkeypatch.setattr(module, "SMOOTHNESS", ((VARIANCE, NOISE),))
    alone = left_out_scores(directions, targets)
    grouped = left_out_scores(directions, targets, groups)
    assert alone[0, 0] > grouped[0, 0] + 0.1


def test_large_sets_are_cut_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    directions = unit_vectors(60, seed=3).float().numpy()
    targets = (directions[:, :2] > 0.2).astype(np.int8)
    whole = left_out_scores(directions, targets)
    monkeypatch.setattr(module, "MOST_IMAGES", 30)
    parts = left_out_scores(directions, targets)
    assert np.corrcoef(whole.ravel(), parts.ravel())[0, 1] > 0.8
    assert not np.allclose(whole, parts)
