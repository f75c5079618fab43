"""What every encoder is: images in, one pooled feature and one feature per position out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.shapes import Float


class StageTaps(NamedTuple):
    """What the first stages of an encoder give for a batch.

    maps:       of the last tapped stage, B x C x H x W, or tokens B x T x C.
    statistics: mean and standard deviation per channel (B x 2C) of the maps of each of the last
                `STAGES_WITH_STATISTICS` tapped stages, in order.
    """

    maps: Tensor
    statistics: tuple[Tensor, ...]


class EncoderFeatures(NamedTuple):
    """What an encoder gives for a batch.

    pooled:  one feature vector per image, what timm's own classifier would read.
    spatial: one feature vector per position T of the last feature map (row by row) or per patch, without
             class and register tokens; a view of the map. S is `Encoder.spatial_dim`, which differs from D
             where the encoder widens the features after pooling.
    taps:    of the frozen stages, where the encoder was built with taps.
    """

    pooled: Float[Tensor, "B D"]
    spatial: Float[Tensor, "B T S"]
    taps: StageTaps | None = None


class Encoder(nn.Module, ABC):
    """Base class of encoders.

    name:        how a saved model refers to it: a timm name, that of a plug-in, or "module:" and a class.
    in_channels, input_size: what it was built for; `input_size` is the side of its square images, or 0 where
                 it takes feature vectors, of which `in_channels` is the length.
    mean, std:   per input channel, of the normalisation its weights expect, for pixels between 0 and 1.
    feature_dim, spatial_dim: widths D and S of `EncoderFeatures`.
    backbone:    the network inside; its tensors are `encoder.backbone.*` in a saved model.
    feature_map: an identity that the last feature map passes through: a place for forward hooks.
    num_frozen_stages: how many of its first stages are never trained; 0 where it cannot be cut.
    has_taps:    whether `forward` fills `EncoderFeatures.taps`.

    The methods after `frozen_tensors` need frozen stages, and raise an InputError where there are none.
    """

    name: str
    in_channels: int
    input_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    feature_dim: int
    spatial_dim: int
    backbone: nn.Module
    feature_map: nn.Module
    num_frozen_stages: int = 0
    has_taps: bool = False

    @abstractmethod
    def forward(self, images: Float[Tensor, "B C *size"]) -> EncoderFeatures:
        """Encode normalised images."""

    @property
    def takes_vectors(self) -> bool:
        """Whether it takes feature vectors, B x C, instead of images, B x C x H x W."""
        return self.input_size == 0

    def frozen_tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers of the frozen stages by their names in the backbone."""
        return {}

    @property
    def statistic_widths(self) -> tuple[int, ...]:
        """How many numbers `StageTaps.statistics` has of each stage."""
        raise self._not_cut()

    @property
    def row_width(self) -> int:
        """How many numbers a row of `frozen_rows` has."""
        raise self._not_cut()

    def frozen_rows(self, images: Float[Tensor, "B C *size"]) -> Float[Tensor, "B R"]:
        """What the frozen stages give for normalised images, one row of numbers per image."""
        raise self._not_cut()

    def encode_rows(self, rows: Float[Tensor, "B R"]) -> EncoderFeatures:
        """`forward` for the images whose `frozen_rows` these are; taps are always filled."""
        raise self._not_cut()

    def rest(self) -> nn.Module:
        """The backbone without its frozen stages: its `forward_features` takes their maps."""
        raise self._not_cut()

    def with_taps(self) -> Encoder:
        """The same encoder (the backbone is shared), whose `forward` fills `EncoderFeatures.taps`."""
        raise self._not_cut()

    def _not_cut(self) -> InputError:
        return InputError(f"encoder '{self.name}' has no frozen stages; frozen_stages must be at least 1")


Found = TypeVar("Found")

_MEASURED: dict[Hashable, Any] = {}


def dry_run(module: nn.Module, in_channels: int, image_size: int) -> Any:
    """What the module gives for one square image in evaluation mode, on the meta device."""
    return dry_call(module, torch.empty(1, in_channels, image_size, image_size, device="meta"))


def dry_call(module: nn.Module, given: Any) -> Any:
    """What the module gives for `given`, tensors on the meta device, in evaluation mode.

    Tensors there have shapes and no values, so nothing is computed. The module itself is left as it was.
    """
    state = {
        name: tensor.to("meta") for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    with evaluating(module), torch.no_grad():
        return torch.func.functional_call(module, state, (given,))


def measured_once(module: nn.Module, *how: Hashable, measure: Callable[[], Found]) -> Found:
    """What `measure` finds, remembered for modules that are built alike: dry runs take tenths of a second.

    Alike are modules of one class whose parts and tensors have the same types, settings and shapes.

    how: what is measured, and all else it depends on
    """
    shapes = tuple(tensor.shape for tensor in chain(module.parameters(), module.buffers()))
    key = (type(module), repr(module), shapes, how)
    if key not in _MEASURED:
        _MEASURED[key] = measure()
    found: Found = _MEASURED[key]
    return found


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, after which each part is in its own mode again."""
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training
