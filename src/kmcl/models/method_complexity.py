"""Parameters and multiply-accumulates of every method on an encoder."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch

from kmcl.errors import InputError
from kmcl.kernels import KERNELS, kernel_family
from kmcl.methods import METHODS, find_method
from kmcl.models.complexity import (
    Complexity,
    EncoderCount,
    count_encoder,
    measure_complexity,
    own_image_size,
    unallocated_encoder,
)
from kmcl.options import read_options
from kmcl.options.methods import KmclOptions, MethodOptions


@dataclass(frozen=True)
class MeasuredMethod:
    """What a method computes for one image, on an encoder.

    kernel: that of KMCL, None for the other methods
    gmac:   multiply-accumulates in thousand millions
    """

    encoder: str
    image_size: int
    labels: int
    method: str
    kernel: str | None
    parameters: int
    gmac: float


def measure_method(
    encoder: str,
    options: MethodOptions,
    num_labels: int,
    image_size: int | None = None,
    in_channels: int = 3,
) -> Complexity:
    """Count an encoder and what a method adds to it, without allocating either.

    in_channels: of the images; for the encoder `identity` the length of feature vectors
    """
    if num_labels < 1:
        raise InputError(f"The number of labels must be at least 1; got {num_labels}.")
    built_encoder = unallocated_encoder(encoder, image_size, in_channels)
    with torch.device("meta"):
        head = find_method(options.name).build_head(built_encoder, num_labels, options)
    counted = _count_unallocated(encoder, image_size, in_channels)
    return measure_complexity(built_encoder, head, reads="features", counted=counted)


@functools.lru_cache(maxsize=8)
def _count_unallocated(encoder: str, image_size: int | None, in_channels: int) -> EncoderCount:
    """An encoder is counted once for all methods on it."""
    return count_encoder(unallocated_encoder(encoder, image_size, in_channels))


def measure_methods(
    encoder: str,
    num_labels: int,
    image_size: int | None = None,
    *,
    method: str | None = None,
    kernel: str | None = None,
) -> list[MeasuredMethod]:
    """All methods, KMCL with each of its kernels; or those of one name, or of one kernel."""
    if kernel is not None and method not in (None, "kmcl"):
        raise InputError(f"method {method!r} has no kernels; got kernel {kernel!r}")
    side = image_size or own_image_size(encoder)
    kernels = list(KERNELS) if kernel is None else [kernel]
    if kernel is not None:
        kernel_family(kernel)  # raises for an unknown name
        method = "kmcl"
    measured = []
    for name in METHODS if method is None else [method]:
        for variant in kernels if name == "kmcl" else [None]:
            options = (
                read_options({"name": name})
                if variant is None
                else KmclOptions(kernel=variant, query_width=0)  # the paper's head: the mixture alone
            )
            counted = measure_method(encoder, options, num_labels, side)
            size = (counted.parameters, counted.gmac)
            measured.append(MeasuredMethod(encoder, side, num_labels, name, variant, *size))
    return measured
