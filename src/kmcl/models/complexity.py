"""How large a classifier is and how much it computes per image: parameters and multiply-accumulates.

Multiply-accumulates (MAC) are half the floating-point operations that torch counts in convolutions, matrix
products and attention. They are counted in a dry run on the meta device, which computes nothing. That is
also the more complete count: torch does not count its fused attention when it really runs on a CPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from kmcl.encoders import Encoder, dry_run, open_encoder
from kmcl.errors import InputError
from kmcl.kernels import KERNELS
from kmcl.methods.kmcl.mixture_head import KernelMixtureHead

__all__ = [
    "HEADS",
    "PUBLISHED",
    "Complexity",
    "PublishedComplexity",
    "measure_complexity",
    "measure_encoder_and_head",
    "own_image_size",
    "published_counterpart",
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


class PublishedComplexity(NamedTuple):
    """A row of the paper's complexity columns, with what it was measured on. `head` is a name in `HEADS`."""

    method: str
    head: str
    encoder: str
    image_size: int
    num_labels: int
    parameters_millions: float
    gmac: float


PUBLISHED = (
    PublishedComplexity("KMCL", "isotropic", "tresnet_m", 224, 9, 29.41, 5.74),
    PublishedComplexity("KMCL", "isotropic", "tresnet_v2_l", 448, 9, 44.20, 35.28),
    PublishedComplexity("ASL", "linear", "tresnet_v2_l", 448, 9, 44.14, 35.28),
    PublishedComplexity("KMCL", "anisotropic", "tresnet_m", 224, 9, 104.91, 5.81),
    PublishedComplexity("KMCL", "mahalanobis", "tresnet_m", 224, 9, 71.34, 5.78),
    PublishedComplexity("KMCL", "gaussian", "tresnet_m", 224, 9, 29.40, 5.74),
)
"""The two tables with complexity columns: the methods on ADP (9 labels), and the ablation of the kernels."""


def _kernel_head(kernel: str) -> Callable[[int, int], nn.Module]:
    return lambda in_features, num_labels: KernelMixtureHead(in_features, num_labels, kernel)


HEADS: dict[str, Callable[[int, int], nn.Module]] = {
    **{kernel: _kernel_head(kernel) for kernel in KERNELS},
    "linear": nn.Linear,
}
"""Heads by name: each takes the feature width and the number of labels. `linear` is the plain classifier."""


def measure_complexity(
    encoder: Encoder,
    head: nn.Module,
    image_size: int | None = None,
    reads: Literal["pooled", "features"] = "pooled",
) -> Complexity:
    """Count an encoder with any head on it.

    image_size: side of the square images; by default what the encoder was built for.
    reads: whether the head is called with the pooled features or with the whole `EncoderFeatures`.
    """
    classifier = _EncoderAndHead(encoder, head, reads)
    with FlopCounterMode(display=False) as counter:
        dry_run(classifier, encoder.in_channels, image_size or encoder.input_size)
    parameters = sum(parameter.numel() for parameter in classifier.parameters())
    return Complexity(parameters, counter.get_total_flops() // 2)


def measure_encoder_and_head(
    encoder: str, head: str, num_labels: int, image_size: int | None = None, *, paper_count: bool = False
) -> Complexity:
    """Count a timm encoder with one of `HEADS`, by name, without allocating either.

    paper_count: count what the paper counts, which includes the encoder's own L-way classifier, L(D+1)
        parameters, although a kernel mixture head leaves it unused. A linear head is that classifier.
    """
    if head not in HEADS:
        raise InputError(f"The head must be one of {', '.join(HEADS)}; got '{head}'.")
    if num_labels < 1:
        raise InputError(f"The number of labels must be at least 1; got {num_labels}.")
    measured = _measure_by_name(encoder, head, num_labels, image_size)
    if not paper_count or head == "linear":
        return measured
    unused = num_labels * (unallocated_encoder(encoder, image_size).feature_dim + 1)
    return Complexity(measured.parameters + unused, measured.macs)


def published_counterpart(row: PublishedComplexity, *, paper_count: bool = True) -> Complexity:
    """Our count of what a published row describes."""
    return measure_encoder_and_head(
        row.encoder, row.head, row.num_labels, row.image_size, paper_count=paper_count
    )


def own_image_size(encoder: str) -> int:
    """The image side that an encoder is built for by default."""
    return unallocated_encoder(encoder, None).input_size


@functools.lru_cache(maxsize=64)
def _measure_by_name(encoder: str, head: str, num_labels: int, image_size: int | None) -> Complexity:
    built_encoder = unallocated_encoder(encoder, image_size)
    with torch.device("meta"):
        built_head = HEADS[head](built_encoder.feature_dim, num_labels)
    return measure_complexity(built_encoder, built_head)


@functools.lru_cache(maxsize=8)
def unallocated_encoder(name: str, image_size: int | None) -> Encoder:
    """An encoder on the meta device: shapes without values."""
    with torch.device("meta"):
        return open_encoder(name, image_size=image_size)


class _EncoderAndHead(nn.Module):
    def __init__(self, encoder: Encoder, head: nn.Module, reads: Literal["pooled", "features"]) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.reads = reads

    def forward(self, images: Tensor) -> Any:
        features = self.encoder(images)
        return self.head(features.pooled if self.reads == "pooled" else features)
