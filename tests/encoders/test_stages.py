"""Statistics of feature maps."""

from __future__ import annotations

import torch

from kmcl.encoders.stages import statistics_of


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
