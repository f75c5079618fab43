"""The first stages of a backbone: which modules they are, running them alone, and running what follows them.

A backbone of the families below is a chain: the stem's modules, then its stages, then the rest. Stages that
are never trained give the same maps for the same image for ever, so they can be run once and their maps kept;
training then runs the rest alone. The rest is the backbone itself with the frozen parts replaced by
identities, so that whatever timm does after them is done in the same way.
"""

from __future__ import annotations

import copy
import hashlib
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kmcl.errors import InputError


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


def find_stages(backbone: nn.Module, encoder_name: str) -> Stages:
    """The stages of a timm model, or an InputError that says which families have them."""
    for family in FAMILIES:
        stages = tuple(chain.from_iterable(_expanded(backbone, name) for name in family.stages))
        if stages and all(_has(backbone, name) for name in (*family.stem, *stages)):
            return Stages(family.stem, stages, family.parameters)
    raise _not_split(encoder_name)


def check_number(stages: Stages, num_stages: int, encoder_name: str) -> None:
    if not 0 <= num_stages <= len(stages.stages):
        raise InputError(
            f"frozen_stages must lie between 0 and {len(stages.stages)}, the stages of encoder "
            f"'{encoder_name}' ({stages.stages[0]} to {stages.stages[-1]}); got {num_stages}"
        )


class FirstStages(NamedTuple):
    """What the first stages make of a batch.

    maps:       of the last of them, B x C x H x W, or tokens B x T x C.
    statistics: `statistics_of` the maps of each of the last `STAGES_WITH_STATISTICS` of them, in order.
    """

    maps: Tensor
    statistics: tuple[Tensor, ...]

    @classmethod
    def of(cls, maps: Sequence[Tensor]) -> FirstStages:
        """From the maps of those stages."""
        return cls(maps[-1], tuple(statistics_of(of_stage) for of_stage in maps))


STAGES_WITH_STATISTICS = 3


def run_first(backbone: nn.Module, stages: Stages, num_stages: int, images: Tensor) -> FirstStages:
    """Normalised images through the stem and the first stages."""
    maps = images
    described = []
    for name in stages.first(num_stages):
        maps = attrgetter(name)(backbone)(maps)
        if name in _described(stages, num_stages):
            described.append(maps)
    return FirstStages.of(described)


def collect_maps(backbone: nn.Module, stages: Stages, num_stages: int) -> None:
    """From now on these stages give their maps to `collected_maps`, whenever the backbone runs inside it."""
    for name in _described(stages, num_stages):
        backbone.get_submodule(name).register_forward_hook(_give_maps)


@contextmanager
def collected_maps() -> Iterator[list[Tensor]]:
    """The maps that stages give inside it, in this thread, in their order."""
    maps: list[Tensor] = []
    _collecting.maps = maps
    try:
        yield maps
    finally:
        _collecting.maps = None


def _give_maps(stage: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    maps: list[Tensor] | None = getattr(_collecting, "maps", None)
    if maps is not None:
        maps.append(output)


_collecting = threading.local()


def _described(stages: Stages, num_stages: int) -> tuple[str, ...]:
    return stages.stages[max(0, num_stages - STAGES_WITH_STATISTICS) : num_stages]


def statistics_of(maps: Tensor) -> Tensor:
    """Mean and standard deviation of each channel over the positions: B x 2C."""
    positions = maps.flatten(2) if maps.ndim == 4 else maps.transpose(1, 2)
    means = positions.mean(dim=2)
    variances = (positions - means.unsqueeze(2)).square().mean(dim=2)
    return torch.cat([means, variances.sqrt()], dim=1)


def rest_of(backbone: nn.Module, stages: Stages, num_stages: int) -> nn.Module:
    """The backbone without its first stages, which takes their maps instead of images.

    It shares every other module with the backbone. Made anew for each use (some 50 microseconds), it is never
    out of step with the backbone's mode, device or weights.
    """
    rest = _shallow(backbone)
    containers: dict[str, nn.Module] = {"": rest}
    for name in stages.first(num_stages):
        parent, path = rest, ""
        *outer, last = name.split(".")
        for part in outer:
            path = f"{path}.{part}"
            if path not in containers:
                containers[path] = parent._modules[part] = _shallow(getattr(parent, part))
            parent = containers[path]
        if last in parent._modules:
            parent._modules[last] = _AS_IS
        else:
            parent.__dict__[last] = _AS_IS  # a method of the backbone
    return rest


def frozen_modules(backbone: nn.Module, stages: Stages, num_stages: int) -> Iterator[nn.Module]:
    parts = (attrgetter(name)(backbone) for name in stages.first(num_stages))
    return (part for part in parts if isinstance(part, nn.Module))


def frozen_tensors(backbone: nn.Module, stages: Stages, num_stages: int) -> dict[str, Tensor]:
    """Parameters and buffers of the first stages by their names in the backbone."""
    if not num_stages:
        return {}
    prefixes = tuple(f"{name}." for name in stages.first(num_stages))
    tensors = chain(backbone.named_parameters(), backbone.named_buffers())
    return {
        name: tensor for name, tensor in tensors if name.startswith(prefixes) or name in stages.parameters
    }


def digest_of(tensors: dict[str, Tensor]) -> str:
    """A name for these values; counters of batches, which nothing computes with, are left out."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if not name.endswith("num_batches_tracked"):
            values = tensors[name].detach().cpu().contiguous()
            digest.update(f"\0{name} {values.dtype} {tuple(values.shape)}\0".encode())
            digest.update(values.numpy().tobytes())
    return digest.hexdigest()[:32]


def check_split(
    backbone: nn.Module, stages: Stages, num_stages: int, encoder_name: str, image_shape: tuple[int, int, int]
) -> None:
    """Refuse a backbone whose first stages followed by the rest are not the whole: its forward does more.

    The backbone must be in evaluation mode.
    """
    images = torch.rand(2, *image_shape, generator=torch.Generator().manual_seed(0))
    images = images.to(next(backbone.parameters()).device)
    with torch.no_grad():
        whole = backbone.forward_features(images)  # type: ignore[operator]
        maps = run_first(backbone, stages, num_stages, images).maps
        split = rest_of(backbone, stages, num_stages).forward_features(maps)  # type: ignore[operator]
    if whole.shape != split.shape or not torch.allclose(whole, split, rtol=1e-4, atol=1e-5):
        raise _not_split(encoder_name)


def _not_split(encoder_name: str) -> InputError:
    supported = ", ".join(family.example for family in FAMILIES)
    return InputError(
        f"Encoder '{encoder_name}' cannot be split into stages, which frozen_stages needs; "
        f"the families that can are {supported}."
    )


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


def _shallow(module: nn.Module) -> nn.Module:
    """A copy with a list of children of its own, which are the same modules."""
    copied = copy.copy(module)
    copied.__dict__["_modules"] = dict(module._modules)
    return copied


_AS_IS = nn.Identity()
