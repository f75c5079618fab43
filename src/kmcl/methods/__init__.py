"""Methods of multi-label classification: options, a head and a loss each, behind one interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names
from kmcl.methods.interface import LossTerms, Method, MethodOptions
from kmcl.methods.registry import METHODS, find_method, methods_with, read_options

if TYPE_CHECKING:
    from kmcl.methods.output import Head, HeadOutput

__all__ = [
    "METHODS",
    "Head",
    "HeadOutput",
    "LossTerms",
    "Method",
    "MethodOptions",
    "find_method",
    "methods_with",
    "read_options",
]

_HOMES = {"Head": "kmcl.methods.output", "HeadOutput": "kmcl.methods.output"}

__getattr__ = lazy_names(__name__, _HOMES)
