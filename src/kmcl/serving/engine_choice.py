"""The names of what can compute a model, in a module of their own: commands list them and load no engine."""

from __future__ import annotations

from enum import StrEnum


class Engine(StrEnum):
    """What computes the model.

    auto: onnxruntime for a model on a CPU if the packages for the conversion are installed, else torch
    """

    auto = "auto"
    torch = "torch"
    onnxruntime = "onnxruntime"
