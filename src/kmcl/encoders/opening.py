"""One door to every encoder: timm's, a plug-in's, or a user's own module."""

from __future__ import annotations

from torch import nn

from kmcl.data.normalisation import (
    IDENTITY,
    IMAGENET_MEAN,
    IMAGENET_STD,
    check_image_shape,
    values_per_channel,
)
from kmcl.encoders.interface import Encoder
from kmcl.encoders.module_encoder import ModuleEncoder, is_module_name, module_required
from kmcl.encoders.registry import ENCODERS
from kmcl.encoders.timm_encoder import build_encoder
from kmcl.encoders.vector_encoder import IdentityEncoder
from kmcl.encoders.weights import load_weights
from kmcl.errors import InputError

__all__ = ["open_encoder"]


def open_encoder(
    encoder: str | nn.Module,
    weights: str = "none",
    in_channels: int = 3,
    image_size: int | None = None,
    *,
    frozen_stages: int = 0,
    taps: bool = False,
) -> Encoder:
    """The encoder of a name, or a user's own module as one.

    encoder: a name of timm or of a plug-in; 'identity' for feature vectors of `in_channels` numbers; or a
        module, see `ModuleEncoder`, whose attributes `input_size`, `mean` and `std` count where it has them
        (ImageNet's mean and std where not). An `Encoder` is returned as it was built.
    weights: 'none', 'timm', a package, or a file; for modules and plug-ins 'none' (as they come) or a file.
    image_size: side of the square images; the encoder's own when not given.
    frozen_stages, taps: see `TimmEncoder`; modules and plug-ins have no stages.
    """
    if isinstance(encoder, Encoder):
        if frozen_stages != encoder.num_frozen_stages:
            raise InputError(
                f"encoder '{encoder.name}' was built with {encoder.num_frozen_stages} frozen stages; "
                f"frozen_stages must be the same; got {frozen_stages}"
            )
        return encoder.with_taps() if taps else encoder
    if encoder == IDENTITY:
        return IdentityEncoder(in_channels, taps=taps)
    if isinstance(encoder, str) and encoder not in ENCODERS:
        if is_module_name(encoder):
            raise module_required(encoder)
        return build_encoder(
            encoder, weights, in_channels, image_size, frozen_stages=frozen_stages, taps=taps
        )
    check_image_shape(in_channels, image_size)
    if isinstance(encoder, str):
        opened = _open_plugin(encoder, in_channels, image_size)
    else:
        opened = _open_module(encoder, in_channels, image_size)
    if frozen_stages or taps:
        raise InputError(f"encoder '{opened.name}' has no stages to freeze; frozen_stages must be 0")
    if weights == "timm":
        raise InputError(f"timm has no weights for encoder '{opened.name}'; use --weights none or a file.")
    if weights != "none":
        load_weights(opened.backbone, weights)
    return opened


def _open_plugin(name: str, in_channels: int, image_size: int | None) -> ModuleEncoder:
    factory = ENCODERS[name]
    size = image_size or factory.image_size
    mean, std = (values_per_channel(values, in_channels) for values in (factory.mean, factory.std))
    return ModuleEncoder(factory.build(size, in_channels), size, mean=mean, std=std, name=name)


def _open_module(module: nn.Module, in_channels: int, image_size: int | None) -> ModuleEncoder:
    size = image_size or getattr(module, "input_size", None)
    if not isinstance(size, int):
        raise InputError(
            f"image_size must be given: {type(module).__name__} has no attribute input_size that is a number"
        )
    mean = values_per_channel(_numbers(module, "mean", IMAGENET_MEAN), in_channels)
    std = values_per_channel(_numbers(module, "std", IMAGENET_STD), in_channels)
    return ModuleEncoder(module, size, mean=mean, std=std)


def _numbers(module: nn.Module, attribute: str, default: tuple[float, ...]) -> tuple[float, ...]:
    value = getattr(module, attribute, None)
    return tuple(value) if isinstance(value, tuple | list) else default  # a method or a tensor means its own
