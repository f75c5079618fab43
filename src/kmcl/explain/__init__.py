"""Explanations of predictions."""

from kmcl.explain.saliency import enlarge, label_heat

__all__ = [
    "enlarge",
    "label_heat",
]
