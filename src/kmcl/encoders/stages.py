"""The stages of a backbone: which of its modules they are, and statistics of their maps.

A backbone of the families below is a chain: the stem's modules, then its stages, then the rest.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kmcl.encoders.interface import StageTaps, dry_run, evaluating, measured_once
from kmcl.errors import InputError
from kmcl.options.posthoc import STAGES_WITH_STATISTICS
from kmcl.shapes import Float


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


class EncoderCut:
    """The first stages of a backbone (the stem is part of the first) and what follows them.

    It holds no tensors of its own. A backbone that cannot be cut there is refused with an InputError.

    backbone, encoder_name: a timm model and its name, for messages.
    num_stages:       how many stages come before the cut.
    map_shape:        of what the last of them gives for one image, C x H x W or T x C.
    statistic_widths: of each entry of `StageTaps.statistics`.
    """

    def __init__(
        self, backbone: nn.Module, encoder_name: str, num_stages: int, in_channels: int, input_size: int
    ) -> None:
        stages = find_stages(backbone, encoder_name)
        stages.check_number(num_stages, encoder_name)
        self.backbone = backbone
        self.num_stages = num_stages
        self._first = stages.first(num_stages)
        self._with_statistics = frozenset(stages.with_statistics(num_stages))
        self._parameters = stages.parameters
        self.map_shape, self.statistic_widths = measured_once(
            backbone,
            *("taps", encoder_name, num_stages, in_channels, input_size),
            measure=lambda: self._tap_shapes(in_channels, input_size),
        )
        self._check(encoder_name, in_channels, input_size)

    def run_first(self, images: Float[Tensor, "B C H W"]) -> StageTaps:
        """Normalised images through the stem and the first stages."""
        maps = images
        statistics = []
        for name in self._first:
            maps = attrgetter(name)(self.backbone)(maps)
            if name in self._with_statistics:
                statistics.append(statistics_of(maps))
        return StageTaps(maps, tuple(statistics))

    def rest(self) -> nn.Module:
        """The backbone without its first stages: its `forward_features` takes their maps.

        It shares every other module with the backbone. Made anew for each use (some 50 microseconds), it is
        never out of step with the backbone's mode, device or weights, and safe to use from any thread.
        """
        rest: nn.Module = _without(self.backbone, self._first)
        return rest

    def modules(self) -> Iterator[nn.Module]:
        """The modules of the first stages."""
        parts = (attrgetter(name)(self.backbone) for name in self._first)
        return (part for part in parts if isinstance(part, nn.Module))

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers of the first stages by their names in the backbone."""
        prefixes = tuple(f"{name}." for name in self._first)
        tensors = chain(self.backbone.named_parameters(), self.backbone.named_buffers())
        return {
            name: tensor for name, tensor in tensors if name.startswith(prefixes) or name in self._parameters
        }

    def to_rows(self, taps: StageTaps) -> Float[Tensor, "B R"]:
        """One row of numbers per image: its maps (channels last), then their statistics."""
        maps = taps.maps.permute(0, 2, 3, 1) if taps.maps.ndim == 4 else taps.maps
        return torch.cat([maps.flatten(1), *taps.statistics], dim=1)

    @property
    def row_width(self) -> int:
        """How many numbers a row has."""
        return math.prod(self.map_shape) + sum(self.statistic_widths)

    def from_rows(self, rows: Float[Tensor, "B R"]) -> StageTaps:
        """The inverse of `to_rows`."""
        sizes = [math.prod(self.map_shape), *self.statistic_widths]
        maps, *statistics = torch.split(rows, sizes, dim=1)
        if len(self.map_shape) == 3:
            channels, height, width = self.map_shape
            maps = maps.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        else:
            maps = maps.reshape(-1, *self.map_shape)
        return StageTaps(maps, tuple(statistics))

    def _tap_shapes(self, in_channels: int, input_size: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        taps: StageTaps = dry_run(_FirstStages(self), in_channels, input_size)
        return tuple(taps.maps.shape[1:]), tuple(statistics.shape[1] for statistics in taps.statistics)

    def _check(self, encoder_name: str, in_channels: int, input_size: int) -> None:
        """Refuse a backbone whose forward does more than its first stages followed by the rest."""
        device = next(self.backbone.parameters()).device
        if device.type == "meta":
            return  # no values to compare; the encoder is built again where it is to be used
        generator = torch.Generator().manual_seed(0)
        shape = (1, in_channels, input_size, input_size)
        images = torch.rand(shape, generator=generator, device="cpu").to(device)
        with evaluating(self.backbone), torch.no_grad():
            whole = self.backbone.forward_features(images)  # type: ignore[operator]
            cut = self.rest().forward_features(self.run_first(images).maps)  # type: ignore[operator]
        if whole.shape != cut.shape or not torch.allclose(whole, cut, rtol=1e-4, atol=1e-5):
            raise not_cuttable(encoder_name)


class _FirstStages(nn.Module):
    """`EncoderCut.run_first` as a module, the form a dry run needs."""

    def __init__(self, cut: EncoderCut) -> None:
        super().__init__()
        self.backbone = cut.backbone
        self.cut = cut

    def forward(self, images: Tensor) -> StageTaps:
        return self.cut.run_first(images)


# A compiler cannot trace the making of copies; it compiles what comes before and after.
@torch.compiler.disable  # type: ignore[untyped-decorator]
def _without(backbone: nn.Module, names: tuple[str, ...]) -> nn.Module:
    """The backbone with identities in the place of these parts."""
    rest = _shallow(backbone)
    containers: dict[str, nn.Module] = {"": rest}
    for name in names:
        parent, path = rest, ""
        *outer, last = name.split(".")
        for part in outer:
            path = f"{path}.{part}"
            if path not in containers:
                containers[path] = _children(parent)[part] = _shallow(_children(parent)[part])
            parent = containers[path]
        if last in _children(parent):
            _children(parent)[last] = _IDENTITY
        else:
            parent.__dict__[last] = _IDENTITY  # a method of the backbone
    return rest


def _shallow(module: nn.Module) -> nn.Module:
    """A copy with a list of children of its own, which are the same modules."""
    copied = copy.copy(module)
    copied.__dict__["_modules"] = dict(_children(module))
    return copied


def _children(module: nn.Module) -> dict[str, nn.Module]:
    """The children themselves: while a model is exported, attributes of a module give proxies of them."""
    children: dict[str, nn.Module] = module.__dict__["_modules"]
    return children


_IDENTITY = nn.Identity()
