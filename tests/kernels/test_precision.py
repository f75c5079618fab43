"""Precision inside the losses: float32 or better, gradients that float16 can hold, no autocast."""

from __future__ import annotations

import pytest
import torch

from kmcl.kernels.precision import at_least_float32, without_autocast


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_values_are_kept_and_half_precision_is_widened(given, expected, requires_grad):
    tensor = torch.tensor([1.5, -2.0], dtype=given, requires_grad=requires_grad)
    found = at_least_float32(tensor)
    assert found.dtype == expected
    assert found.tolist() == [1.5, -2.0]


def test_gradients_that_float16_cannot_hold_become_a_quarter_of_its_largest():
    tensor = torch.ones(4, dtype=torch.float16, requires_grad=True)
    weights = torch.tensor([1e6, -1e6, 3.0, -16000.0])
    (at_least_float32(tensor) * weights).sum().backward()
    assert tensor.grad is not None
    assert tensor.grad.dtype == torch.float16
    assert tensor.grad.tolist() == [16376, -16376, 3, -16000]  # 65504 / 4


def test_gradients_of_other_types_are_not_limited():
    for dtype in (torch.bfloat16, torch.float32):
        tensor = torch.ones(1, dtype=dtype, requires_grad=True)
        (at_least_float32(tensor) * 2.0**20).sum().backward()
        assert tensor.grad is not None
        assert tensor.grad.item() == 2**20


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast_is_off_inside_and_as_it_was_outside(device):
    @without_autocast
    def inside(value: int, *, other: int) -> tuple[bool, int, int]:
        """Where autocast is on."""
        return torch.is_autocast_enabled(device), value, other

    before = torch.is_autocast_enabled(device)
    torch.set_autocast_enabled(device, True)
    try:
        assert inside(3, other=4) == (False, 3, 4)
        assert torch.is_autocast_enabled(device)
    finally:
        torch.set_autocast_enabled(device, before)
    assert (inside.__name__, inside.__doc__) == ("inside", "Where autocast is on.")
