"""A frozen trace: twenty float64 training steps whose losses a refactoring must not change.

To write it anew after a change that is meant to alter results: `python tests/losses/test_trace.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from kmcl.kernels import KERNELS
from kmcl.losses import kmcl_objective
from kmcl.methods.kmcl import KernelMixtureHead

TRACE = Path(__file__).with_name("trace.json")


def run_steps(kernel: str, steps: int = 20) -> list[list[float]]:
    """Losses of a linear encoder and a head on one batch; its numbers come from arithmetic, not chance."""
    image = torch.arange(12 * 10, dtype=torch.float64).reshape(12, 10)
    image = torch.sin(1 + 0.7 * image)
    targets = (torch.cos(2 + 1.3 * torch.arange(12 * 5, dtype=torch.float64)).reshape(12, 5) > 0.3).long()
    encoder = torch.nn.Linear(10, 8, dtype=torch.float64)
    head = KernelMixtureHead(8, 5, kernel).double()
    with torch.no_grad():
        for parameter in (*encoder.parameters(), *head.parameters()):
            numbers = torch.arange(parameter.numel(), dtype=torch.float64).reshape(parameter.shape)
            parameter.copy_(0.1 * torch.sin(3 + 0.9 * numbers))
    optimiser = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.3)
    losses = []
    for _ in range(steps):
        features = encoder(image)
        terms = kmcl_objective(features, head(features), targets)
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()
        losses.append([term.item() for term in terms])
    return losses


@pytest.mark.parametrize("kernel", KERNELS)
def test_losses_of_twenty_steps(kernel):
    frozen = torch.tensor(json.loads(TRACE.read_text())[kernel], dtype=torch.float64)
    assert frozen[-1, -1] < 0.95 * frozen[0, -1]  # it trains
    torch.testing.assert_close(
        torch.tensor(run_steps(kernel), dtype=torch.float64), frozen, rtol=1e-9, atol=1e-12
    )


if __name__ == "__main__":
    TRACE.write_text(json.dumps({kernel: run_steps(kernel) for kernel in KERNELS}, indent=0) + "\n")
