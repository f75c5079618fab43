"""Checks shared by the losses: every message names the argument and what it got."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from kmcl.kernels.targets import Targets, read_targets, split_targets


class NonFiniteError(ValueError):
    """A tensor holds an infinity or NaN; the message names it, the value and its position."""


def check_inputs(
    targets: Tensor | Targets, tensors: Mapping[str, Tensor], above_zero: Collection[str] = ()
) -> Targets:
    """Check targets and that `tensors`, by the names for messages, are finite: waits for the device once.

    above_zero: those that must be above 0, as variances are: at 0 the loss is NaN

    If targets are `Targets` already, the caller has checked all inputs and they are trusted: a loss composed
    of others calls this once and passes on the result.
    """
    if isinstance(targets, Targets):
        return targets
    masks, valid = split_targets(targets, "targets")
    for name, tensor in tensors.items():
        _check_floating_point(name, tensor)
    passed = [valid.all()]
    for name, tensor in tensors.items():
        if tensor.numel():
            low, high = tensor.detach().aminmax()  # one pass instead of isfinite's four; lets NaN through
            passed += [low > 0 if name in above_zero else low.isfinite(), high.isfinite()]
    if not bool(torch.stack(passed).all()):
        for name, tensor in tensors.items():
            check_finite(name, tensor)
            if name in above_zero:
                _check_above_zero(name, tensor)
        return read_targets(targets)
    return masks


def check_same_shape(name: str, tensor: Tensor | Targets, other_name: str, other: Tensor) -> None:
    if tensor.shape != other.shape:
        raise ValueError(
            f"{name} must have the shape of {other_name}, {tuple(other.shape)}; got {tuple(tensor.shape)}"
        )


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise a NonFiniteError with the first value that is infinite or NaN."""
    _check_floating_point(name, tensor)
    finite = torch.isfinite(tensor)
    if not bool(finite.all()):
        where = (~finite).nonzero()[0].tolist()
        raise NonFiniteError(f"{name} must be finite; got {tensor[tuple(where)].item()} at position {where}")


def _check_above_zero(name: str, tensor: Tensor) -> None:
    wrong = (tensor <= 0).nonzero()
    if len(wrong):
        where = wrong[0].tolist()
        raise ValueError(f"{name} must be above 0; got {tensor[tuple(where)].item():g} at position {where}")


def check_between(name: str, value: float, low: float, high: float, *, open_low: bool = False) -> None:
    """low <= value <= high, or low < value with `open_low`."""
    if not (math.isfinite(value) and value <= high and (value > low if open_low else value >= low)):
        bound = f"above {low}" if open_low else f"at least {low}"
        limit = f" and at most {high}" if math.isfinite(high) else ""
        raise ValueError(f"{name} must be a finite number {bound}{limit}; got {value}")


def mean_over_images(total: Tensor, targets: Targets, num_images: Tensor | float | None) -> Tensor:
    """A sum over images divided by `num_images`, by default the images with a known label; at least by 1."""
    count = targets.num_images if num_images is None else num_images
    return total / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1))


def _check_floating_point(name: str, tensor: Tensor) -> None:
    if not tensor.is_floating_point():
        raise ValueError(f"{name} must be floating point; got {tensor.dtype}")
