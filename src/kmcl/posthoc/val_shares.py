"""The share of val that lies below a number: a scale from 0 to 1 on which false alarms can be read off."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kmcl.shapes import Float

MOST_QUANTILES = 500


class ValShares(nn.Module):
    """The share of n values of val that are smaller than a new one, as a continuous increasing function.

    At the values q_1 < ... < q_Q of val, whose ranks are r_1 = 1 < ... < r_Q = n, it is

        h_1 = 0,    h_j = r_(j-1) / (n + 1)

    with straight lines between them; beyond q_Q it approaches n / (n + 1). All values of val are used, or
    `MOST_QUANTILES` of them with equal spaces between their ranks. The function is never above the share of
    all n + 1 values (those of val and the new one) that are at most the new one and of val. So if the new
    value is drawn as those of val are, it reaches 1 - a with a probability of at most a.
    """

    quantiles: Tensor
    heights: Tensor

    def __init__(self, num_quantiles: int) -> None:
        super().__init__()
        self.register_buffer("quantiles", torch.zeros(num_quantiles))
        self.register_buffer("heights", torch.zeros(num_quantiles + 1))

    @torch.no_grad()
    def fit(self, values: Float[Tensor, " N"]) -> None:
        number = len(values)
        ranks = torch.linspace(1, number, min(number, MOST_QUANTILES), dtype=torch.float64).round().long()
        self.quantiles = values.sort().values[ranks.to(values.device) - 1].to(self.quantiles)
        heights = torch.cat([torch.zeros(1, dtype=torch.int64), ranks]).double() / (number + 1)
        self.heights = heights.to(self.heights)

    def forward(self, values: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
        # What holds of val alone comes first: in an exported file it is a constant.
        lower, upper = self.quantiles[:-1], self.quantiles[1:]
        smallest = torch.finfo(values.dtype).tiny
        slopes = 1 / (upper - lower).clamp(min=smallest)
        steps = self.heights[1:-1] - self.heights[:-2]
        spread = (self.quantiles[-1] - self.quantiles[0]).clamp(min=smallest)
        last_step = self.heights[-1] - self.heights[-2]
        passed = ((values.unsqueeze(1) - lower) * slopes).clamp(0, 1)
        beyond = (values - self.quantiles[-1]).relu()
        return passed @ steps + last_step * beyond / (beyond + spread)
