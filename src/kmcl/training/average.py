"""The moving average of a model's weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import torch
from torch import Tensor, nn


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
        averaged, followed = [], []
        current = model.state_dict()
        for name, tensor in self.model.state_dict().items():
            if name in self._constant:
                continue
            if tensor.is_floating_point():
                averaged.append(tensor)
                followed.append(current[name])
            else:
                tensor.copy_(current[name])
        torch._foreach_lerp_(averaged, followed, 1 - decay)
