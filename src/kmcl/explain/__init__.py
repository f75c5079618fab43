"""Explanations of predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.explain.saliency import enlarge, label_heat

__all__ = [
    "enlarge",
    "label_heat",
]

_HOMES = {
    "enlarge": "kmcl.explain.saliency",
    "label_heat": "kmcl.explain.saliency",
}

__getattr__ = lazy_names(__name__, _HOMES)
