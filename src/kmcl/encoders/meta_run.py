"""The shapes of a module's outputs, without computing them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

__all__ = ["dry_run", "evaluating"]


def dry_run(module: nn.Module, in_channels: int, image_size: int) -> Any:
    """What the module gives for one square image in evaluation mode, on the meta device.

    Tensors there have shapes and no values, so nothing is computed. The module itself is left as it was.
    """
    state = {
        name: tensor.to("meta") for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    images = torch.empty(1, in_channels, image_size, image_size, device="meta")
    with evaluating(module), torch.no_grad():
        return torch.func.functional_call(module, state, (images,))


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
