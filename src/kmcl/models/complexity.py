"""How large a classifier is and how much it computes per image: parameters and multiply-accumulates.

Multiply-accumulates (MAC) are half the floating-point operations that torch counts in convolutions, matrix
products and attention. They are counted in a dry run on the meta device, which computes nothing. That is
also the more complete count: torch does not count its fused attention when it really runs on a CPU.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from kmcl.encoders import Encoder, EncoderFeatures, dry_run, open_encoder
from kmcl.encoders.interface import dry_call

__all__ = [
    "Complexity",
    "EncoderCount",
    "count_encoder",
    "measure_complexity",
    "own_image_size",
    "unallocated_encoder",
]


@dataclass(frozen=True)
class Complexity:
    """parameters: learnable numbers. macs: multiply-accumulates for one image."""

    parameters: int
    macs: int

    @property
    def parameters_millions(self) -> float:
        return self.parameters / 1e6

    @property
    def gmac(self) -> float:
        return self.macs / 1e9


class EncoderCount(NamedTuple):
    """features: of one image, on the meta device. macs: that they take."""

    features: EncoderFeatures
    macs: int


def count_encoder(encoder: Encoder, image_size: int | None = None) -> EncoderCount:
    """Count an encoder alone; image_size: by default what it was built for."""
    with FlopCounterMode(display=False) as counter:
        if encoder.takes_vectors:
            features = dry_call(encoder, torch.empty(1, encoder.in_channels, device="meta"))
        else:
            features = dry_run(encoder, encoder.in_channels, image_size or encoder.input_size)
    return EncoderCount(features, counter.get_total_flops() // 2)


def measure_complexity(
    encoder: Encoder,
    head: nn.Module,
    image_size: int | None = None,
    reads: Literal["pooled", "features"] = "pooled",
    counted: EncoderCount | None = None,
) -> Complexity:
    """Count an encoder with any head on it.

    image_size: side of the square images; by default what the encoder was built for.
    reads: whether the head is called with the pooled features or with the whole `EncoderFeatures`.
    counted: the encoder's own count, where it is known.
    """
    features, macs = counted or count_encoder(encoder, image_size)
    with FlopCounterMode(display=False) as counter:
        dry_call(head, features.pooled if reads == "pooled" else features)
    parameters = sum(parameter.numel() for parameter in {*encoder.parameters(), *head.parameters()})
    return Complexity(parameters, macs + counter.get_total_flops() // 2)


def own_image_size(encoder: str) -> int:
    """The image side that an encoder is built for by default."""
    return unallocated_encoder(encoder, None).input_size


@functools.lru_cache(maxsize=8)
def unallocated_encoder(name: str, image_size: int | None, in_channels: int = 3) -> Encoder:
    """An encoder on the meta device: shapes without values."""
    with torch.device("meta"):
        return open_encoder(name, image_size=image_size, in_channels=in_channels)
