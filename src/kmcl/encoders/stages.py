"""The stages of a backbone: which of its modules they are, and statistics of their maps.

A backbone of the families below is a chain: the stem's modules, then its stages, then the rest.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.options.posthoc import STAGES_WITH_STATISTICS
from kmcl.shapes import Float

__all__ = [
    "Stages",
    "cell_means",
    "digest_of",
    "find_stages",
    "not_cuttable",
    "statistics_of",
]


@dataclass(frozen=True)
class _Family:
    """Names of modules (or methods) that are called one after the other.

    stages: one name per stage; `blocks.*` stands for every child of `blocks`.
    parameters: of the stem, where they belong to no module of it.
    """

    example: str
    stem: tuple[str, ...]
    stages: tuple[str, ...]
    parameters: tuple[str, ...] = ()


FAMILIES = (
    _Family("EfficientNet, MobileNet", ("conv_stem", "bn1"), ("blocks.*",)),
    _Family("ResNet", ("conv1", "bn1", "act1", "maxpool"), ("layer1", "layer2", "layer3", "layer4")),
    _Family(
        "TResNet", ("body.s2d", "body.conv1"), ("body.layer1", "body.layer2", "body.layer3", "body.layer4")
    ),
    _Family("ConvNeXt", ("stem",), ("stages.*",)),
    _Family("RegNet", ("stem",), ("s1", "s2", "s3", "s4")),
    _Family(
        "ViT",
        ("patch_embed", "_pos_embed", "patch_drop", "norm_pre"),
        ("blocks.*",),
        ("cls_token", "reg_token", "pos_embed"),
    ),
)


class Stages(NamedTuple):
    """What a backbone is made of: names in the order they are called. The stem goes with the first stage."""

    stem: tuple[str, ...]
    stages: tuple[str, ...]
    parameters: tuple[str, ...]

    def first(self, num_stages: int) -> tuple[str, ...]:
        return (*self.stem, *self.stages[:num_stages]) if num_stages else ()

    def with_statistics(self, num_stages: int) -> tuple[str, ...]:
        """Of the first stages, those whose maps `StageTaps.statistics` describes."""
        return self.stages[max(0, num_stages - STAGES_WITH_STATISTICS) : num_stages]

    def check_number(self, num_stages: int, encoder_name: str) -> None:
        if not 0 <= num_stages <= len(self.stages):
            raise InputError(
                f"frozen_stages must lie between 0 and {len(self.stages)}, the stages of encoder "
                f"'{encoder_name}' ({self.stages[0]} to {self.stages[-1]}); got {num_stages}"
            )


def find_stages(backbone: nn.Module, encoder_name: str) -> Stages:
    """The stages of a timm model, or an InputError that says which families have them."""
    for family in FAMILIES:
        stages = tuple(chain.from_iterable(_expanded(backbone, name) for name in family.stages))
        if stages and all(_has(backbone, name) for name in (*family.stem, *stages)):
            return Stages(family.stem, stages, family.parameters)
    raise not_cuttable(encoder_name)


def not_cuttable(encoder_name: str) -> InputError:
    supported = ", ".join(family.example for family in FAMILIES)
    return InputError(
        f"Encoder '{encoder_name}' cannot be split into stages, which frozen_stages needs; "
        f"the families that can are {supported}."
    )


def statistics_of(maps: Tensor) -> Float[Tensor, "B S"]:
    """Mean and standard deviation of each channel over the positions: B x 2C.

    The gradient of a deviation of 0, of a channel that is the same everywhere, is 0. That of the plain root
    is infinite there, and would make a saliency map of the whole image NaN.
    """
    positions = maps.flatten(2) if maps.ndim == 4 else maps.transpose(1, 2)
    means = positions.mean(dim=2)
    variances = (positions - means.unsqueeze(2)).square().mean(dim=2)
    varies = variances > 0
    deviations = torch.where(varies, variances, 1.0).sqrt().where(varies, 0.0)
    return torch.cat([means, deviations], dim=1)


def cell_means(maps: Tensor, grid: int) -> Float[Tensor, "B S"]:
    """Mean of each channel in grid x grid cells of the image, of equal size: B x (C grid grid).

    A position that lies in two cells counts for each by its share. Tokens of a transformer are read as a
    square, after those that stand for no place.
    """
    if maps.ndim == 3:
        side = math.isqrt(maps.shape[1])
        maps = maps[:, maps.shape[1] - side * side :].transpose(1, 2).reshape(len(maps), -1, side, side)
    height, width = maps.shape[2:]
    return (_shares(height, grid).to(maps) @ maps @ _shares(width, grid).to(maps).T).flatten(1)


def _shares(size: int, grid: int) -> Float[Tensor, "G size"]:
    """How much of each cell every one of `size` positions covers; the shares of a cell add up to 1."""
    edges = torch.arange(grid + 1, dtype=torch.float64) * (size / grid)
    positions = torch.arange(size)
    ends = torch.minimum(edges[1:, None], positions + 1)
    starts = torch.maximum(edges[:-1, None], positions)
    return (ends - starts).clamp(min=0) * (grid / size)


def digest_of(tensors: dict[str, Tensor]) -> str:
    """A name for these values; counters of batches, which nothing computes with, are left out."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if not name.endswith("num_batches_tracked"):
            values = tensors[name].detach().cpu().contiguous()
            digest.update(f"\0{name} {values.dtype} {tuple(values.shape)}\0".encode())
            digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:32]


def _expanded(backbone: nn.Module, name: str) -> tuple[str, ...]:
    if not name.endswith(".*"):
        return (name,)
    container = getattr(backbone, name[:-2], None)
    if not isinstance(container, nn.Sequential):
        return ()
    return tuple(f"{name[:-2]}.{child}" for child in container._modules)


def _has(backbone: nn.Module, name: str) -> bool:
    try:
        return callable(attrgetter(name)(backbone))
    except AttributeError:
        return False
