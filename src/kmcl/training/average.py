"""The moving average of a model's weights."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

_Place = tuple[dict[str, Any], str]
"""The table of parameters or buffers that a module has, and the name of one of them."""


class MovingAverage(nn.Module):
    """A copy of a model whose weights follow it: average <- decay · average + (1 - decay) · weights.

    The paper averages with 0.9997 from the first step on, so that the initial weights keep an influence for
    thousands of steps. With `warmup` the decay is at most (1 + n)/(10 + n) at update n, so that short runs
    benefit too. Running statistics of norms are averaged like weights; counters are copied. Tensors named in
    `constant` never change and are skipped.
    """

    def __init__(self, model: nn.Module, decay: float, *, warmup: bool, constant: Iterable[str] = ()) -> None:
        super().__init__()
        self.decay = decay
        self.warmup = warmup
        self._constant = frozenset(constant)
        self.model = copy.deepcopy(model).requires_grad_(False).eval()
        self.register_buffer("num_updates", torch.zeros((), dtype=torch.int64))
        self._places = _places(self.model, self._constant)
        self._followed: tuple[nn.Module, list[_Place]] | None = None

    def train(self, mode: bool = True) -> MovingAverage:
        """The average is never trained: its norms always use their running statistics."""
        return super().train(False)

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        counter: Tensor = self.num_updates  # type: ignore[assignment]
        counter += 1
        decay = self.decay
        if self.warmup:
            decay = min(decay, (1 + counter.item()) / (10 + counter.item()))
        if self._followed is None or self._followed[0] is not model:
            self._followed = model, _places(model, self._constant)
        averaged, followed = [], []
        for (table, name), (other, _) in zip(self._places, self._followed[1], strict=True):
            tensor, current = table[name], other[name]
            if tensor.is_floating_point():
                averaged.append(tensor)
                followed.append(current)
            else:
                tensor.copy_(current)
        for is_sharded in (False, True):  # parameters may be, buffers never are
            chosen = [place for place, t in enumerate(averaged) if isinstance(t, DTensor) == is_sharded]
            if chosen:
                torch._foreach_lerp_(
                    [averaged[place] for place in chosen], [followed[place] for place in chosen], 1 - decay
                )


def _places(model: nn.Module, constant: Collection[str]) -> list[_Place]:
    """Where the tensors of a model's state are, but for those named in `constant`.

    Found once: making a state dict at every step takes longer than the average itself. The tensors are looked
    up anew each time, since a model that is moved to a device has others.
    """
    places: list[_Place] = []
    for prefix, part in model.named_modules(remove_duplicate=False):
        for table in (part._parameters, part._buffers):
            for name, tensor in table.items():
                whole = f"{prefix}.{name}" if prefix else name
                is_state = tensor is not None and name not in part._non_persistent_buffers_set
                if is_state and whole not in constant:
                    places.append((table, name))
    return places
