"""Losses and kernels compute in float32 or better, whatever the autocast around them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def at_least_float32(tensor: Tensor) -> Tensor:
    """The tensor as it is, or as float32 if it has half precision.

    Gradients that float16 cannot hold become its largest values instead of infinite: with D in the
    thousands and features of size 1,000, those of Eq. 5 pass its limit of 65,504.
    """
    if tensor.dtype == torch.float16 and tensor.requires_grad:
        widened: Tensor = _WidenFloat16.apply(tensor)  # type: ignore[no-untyped-call]
        return widened
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


class _WidenFloat16(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.float()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        # A quarter of the range: the head and the losses each return a gradient for the same features.
        limit = torch.finfo(torch.float16).max / 4
        return gradients[0].clamp(-limit, limit)


def without_autocast(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Run `function` with autocast off on CPU and CUDA: a bfloat16 matmul cannot even count to 257."""

    @wraps(function)
    def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            return function(*args, **kwargs)

    return run
