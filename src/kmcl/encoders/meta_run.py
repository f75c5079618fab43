"""The shapes of a module's outputs, without computing them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import nn

__all__ = ["dry_call", "dry_run", "evaluating", "measured_once"]

Found = TypeVar("Found")

_MEASURED: dict[Hashable, Any] = {}


def dry_run(module: nn.Module, in_channels: int, image_size: int) -> Any:
    """What the module gives for one square image in evaluation mode, on the meta device."""
    return dry_call(module, torch.empty(1, in_channels, image_size, image_size, device="meta"))


def dry_call(module: nn.Module, given: Any) -> Any:
    """What the module gives for `given`, tensors on the meta device, in evaluation mode.

    Tensors there have shapes and no values, so nothing is computed. The module itself is left as it was.
    """
    state = {
        name: tensor.to("meta") for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    with evaluating(module), torch.no_grad():
        return torch.func.functional_call(module, state, (given,))


def measured_once(module: nn.Module, *how: Hashable, measure: Callable[[], Found]) -> Found:
    """What `measure` finds, remembered for modules that are built alike: dry runs take tenths of a second.

    Alike are modules of one class whose parts and tensors have the same types, settings and shapes.

    how: what is measured, and all else it depends on
    """
    shapes = tuple(tensor.shape for tensor in chain(module.parameters(), module.buffers()))
    key = (type(module), repr(module), shapes, how)
    if key not in _MEASURED:
        _MEASURED[key] = measure()
    found: Found = _MEASURED[key]
    return found


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, after which each part is in its own mode again."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
