"""The names of what can compute a model, in a module of their own: commands list them and load no engine."""

from __future__ import annotations

from enum import StrEnum
from typing import NoReturn

from kmcl.errors import InputError


class Engine(StrEnum):
    """What computes the model.

    auto: onnxruntime for a model on a CPU if the packages for the conversion are installed, else torch
    """

    auto = "auto"
    torch = "torch"
    onnxruntime = "onnxruntime"

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise InputError(f"engine must be one of {', '.join(cls)}; got {value!r}")


ENOUGH_TO_CONVERT = 1000
"""Images from which on converting a model for onnxruntime, once, takes less time than it saves."""
