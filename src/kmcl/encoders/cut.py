"""A backbone cut in two after one of its stages.

Stages that are never trained give the same maps for the same image every time, so they can be run once and
their maps cached; training then runs the rest alone. The rest is the backbone itself with its first parts
replaced by identities, so whatever timm does after them is done in the same way. (timm's own
`forward_intermediates` does not fit: it cannot start from maps, and it names five of EfficientNet's seven
stages.)
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from itertools import chain
from operator import attrgetter

import torch
from torch import Tensor, nn

from kmcl.encoders.interface import StageTaps
from kmcl.encoders.meta_run import dry_run, evaluating, measured_once
from kmcl.encoders.stages import find_stages, not_cuttable, statistics_of
from kmcl.shapes import Float

__all__ = ["EncoderCut"]


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
