"""The paper's method: the kernel mixture and the three terms of its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names
from kmcl.methods.kmcl.method import PRESETS, KmclOptions

if TYPE_CHECKING:
    from kmcl.methods.kmcl.mixture_head import INITIAL_VALUES, KernelMixtureHead

__all__ = ["INITIAL_VALUES", "PRESETS", "KernelMixtureHead", "KmclOptions"]

_HOMES = {
    "INITIAL_VALUES": "kmcl.methods.kmcl.mixture_head",
    "KernelMixtureHead": "kmcl.methods.kmcl.mixture_head",
}

__getattr__ = lazy_names(__name__, _HOMES)
