"""Checks shared by the losses: every message names the argument and what it got."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def check_same_shape(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.shape != other.shape:
        raise ValueError(
            f"{name} must have the shape of {other_name}, {tuple(other.shape)}; got {tuple(tensor.shape)}"
        )


def check_finite(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be floating point; got {tensor.dtype}")
    if tensor.numel() == 0:
        return
    low, high = tensor.detach().aminmax()  # one pass instead of isfinite's four; lets NaN through
    if not (math.isfinite(low) and math.isfinite(high)):
        where = (~torch.isfinite(tensor)).nonzero()[0].tolist()
        raise ValueError(f"{name} must be finite; got {tensor[tuple(where)].item()} at position {where}")


def check_between(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    """low <= value <= high, or low < value with `open_low`."""
    if not (math.isfinite(value) and value <= high and (value > low if open_low else value >= low)):
        bound = f"above {low}" if open_low else f"at least {low}"
        limit = f" and at most {high}" if math.isfinite(high) else ""
        raise ValueError(f"{name} must be a finite number {bound}{limit}; got {value}")
