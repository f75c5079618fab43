"""Encoders that other packages add: the entry points of the group `kmcl.encoders`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

from kmcl.data.normalisation import IMAGENET_MEAN, IMAGENET_STD
from kmcl.registry import Registry

__all__ = ["ENCODERS", "EncoderFactory"]


@dataclass(frozen=True)
class EncoderFactory:
    """How a plug-in builds its encoder.

    build:      called with the side of the images and the number of channels, returns a module as
                `ModuleEncoder` takes it.
    image_size: side of the images where the user does not choose it.
    mean, std:  per colour, of the normalisation the module expects; averaged for grey images.
    """

    build: Callable[[int, int], nn.Module]
    image_size: int = 224
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD


ENCODERS: Registry[EncoderFactory] = Registry("encoder", "kmcl.encoders", {}, EncoderFactory)
"""By the name under which users ask for them. timm's encoders are not listed: their names are timm's."""
