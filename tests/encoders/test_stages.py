"""Statistics of feature maps."""

from __future__ import annotations

import pytest
import torch

from kmcl.encoders.stages import cell_means, statistics_of


def test_statistics_are_means_and_deviations_of_the_channels():
    maps = torch.randn(3, 5, 4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    positions = maps.flatten(2)
    expected = torch.cat([positions.mean(2), positions.std(2, correction=0)], dim=1)
    torch.testing.assert_close(statistics_of(maps), expected)
    torch.testing.assert_close(statistics_of(positions.transpose(1, 2)), expected)  # tokens
    assert torch.autograd.gradcheck(statistics_of, maps.requires_grad_())


def test_a_channel_that_is_the_same_everywhere_has_a_finite_gradient():
    maps = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    maps[0, 1] = 0.0
    maps.requires_grad_()
    found = statistics_of(maps)
    assert found[0, 3 + 1] == 0
    found.sum().backward()
    assert torch.isfinite(maps.grad).all()
    torch.testing.assert_close(maps.grad[0, 1], torch.full((4, 4), 1 / 16))  # of the mean alone


@pytest.mark.parametrize(
    ("height", "width", "grid"), [(14, 14, 7), (6, 4, 2), (17, 17, 7), (3, 5, 4), (2, 2, 7)]
)
def test_means_in_cells_are_those_of_the_enlarged_map(height: int, width: int, grid: int):
    """Each position repeated `grid` times: then every cell has whole positions."""
    maps = torch.randn(2, 3, height, width, dtype=torch.float64)
    enlarged = maps.repeat_interleave(grid, dim=2).repeat_interleave(grid, dim=3)
    cells = enlarged.reshape(2, 3, grid, height, grid, width)
    torch.testing.assert_close(cell_means(maps, grid), cells.mean(dim=(3, 5)).flatten(1))
    assert torch.autograd.gradcheck(lambda each: cell_means(each, grid), maps.requires_grad_())


@pytest.mark.parametrize("prefix", [0, 1, 5])
def test_means_in_cells_of_tokens_leave_out_those_without_a_place(prefix: int):
    maps = torch.randn(2, 3, 14, 14)
    tokens = torch.cat([torch.full((2, prefix, 3), 1e6), maps.flatten(2).transpose(1, 2)], dim=1)
    torch.testing.assert_close(cell_means(tokens, 7), cell_means(maps, 7))
    torch.testing.assert_close(cell_means(maps.half(), 7).float(), cell_means(maps, 7), rtol=2e-3, atol=2e-3)
