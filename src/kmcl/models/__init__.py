"""Encoders, heads and the classifier they form. Encoders need timm; the head needs torch alone."""

from kmcl.models.head import INITIAL_VALUES, KernelMixtureHead

__all__ = ["INITIAL_VALUES", "KernelMixtureHead"]
