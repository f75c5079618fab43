"""Any timm model as an encoder."""

from __future__ import annotations

import copy
import difflib
import functools
import math
from dataclasses import dataclass
from typing import Any, Literal

import timm
import torch
from torch import Tensor, nn

from kmcl.data.normalisation import check_image_shape, values_per_channel
from kmcl.encoders.interface import Encoder, EncoderFeatures, dry_run, measured_once
from kmcl.encoders.registry import ENCODERS
from kmcl.encoders.stages import EncoderCut, find_stages
from kmcl.encoders.weights import PACKAGES, create_backbone, default_weights
from kmcl.errors import InputError
from kmcl.shapes import Float

__all__ = ["TimmEncoder", "build_encoder", "count_stages", "own_size"]


@dataclass(frozen=True)
class _Layout:
    """How a backbone lays out its last features; found by running it without computing anything."""

    order: Literal["channels first", "channels last", "tokens"]
    num_prefix_tokens: int
    feature_dim: int
    spatial_dim: int


class TimmEncoder(Encoder):
    """A timm model without its classifier.

    frozen_stages: how many of its first stages are never trained: no gradient, norms in evaluation mode.
    taps: whether `forward` also gives what these stages make of the images.
    """

    def __init__(
        self,
        backbone: nn.Module,
        name: str,
        in_channels: int,
        input_size: int,
        *,
        frozen_stages: int = 0,
        taps: bool = False,
    ) -> None:
        super().__init__()
        if taps and frozen_stages < 1:
            raise InputError(f"taps need frozen_stages of at least 1; got {frozen_stages}")
        config: dict[str, Any] = backbone.pretrained_cfg  # type: ignore[assignment]
        layout = measured_once(
            backbone,
            *("layout", name, in_channels, input_size),
            measure=lambda: _find_layout(backbone, name, in_channels, input_size),
        )
        self.name = name
        self.in_channels = in_channels
        self.input_size = input_size
        self.mean = values_per_channel(config["mean"], in_channels)
        self.std = values_per_channel(config["std"], in_channels)
        self.feature_dim = layout.feature_dim
        self.spatial_dim = layout.spatial_dim
        self._layout = layout
        self.backbone = backbone
        self.feature_map = nn.Identity()
        self.num_frozen_stages = frozen_stages
        self.has_taps = taps
        self._cut: EncoderCut | None = None
        if frozen_stages:
            self._cut = EncoderCut(backbone, name, frozen_stages, in_channels, input_size)
            for tensor in self._cut.tensors().values():
                tensor.requires_grad_(False)
            self.train(self.training)

    def forward(self, images: Float[Tensor, "B C H W"]) -> EncoderFeatures:
        """Encode normalised images."""
        if not self.has_taps:
            return self._encode(self.backbone, images)
        cut = self._first_stages()
        taps = cut.run_first(images)
        return self._encode(cut.rest(), taps.maps)._replace(taps=taps)

    def train(self, mode: bool = True) -> TimmEncoder:
        super().train(mode)
        if self._cut is not None:
            for part in self._cut.modules():
                part.eval()
        return self

    def frozen_tensors(self) -> dict[str, Tensor]:
        return {} if self._cut is None else self._cut.tensors()

    @property
    def statistic_widths(self) -> tuple[int, ...]:
        return self._first_stages().statistic_widths

    @property
    def row_width(self) -> int:
        return self._first_stages().row_width

    def frozen_rows(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B R"]:
        cut = self._first_stages()
        return cut.to_rows(cut.run_first(images))

    def encode_rows(self, rows: Float[Tensor, "B R"]) -> EncoderFeatures:
        cut = self._first_stages()
        taps = cut.from_rows(rows)
        return self._encode(cut.rest(), taps.maps)._replace(taps=taps)

    def rest(self) -> nn.Module:
        return self._first_stages().rest()

    def with_taps(self) -> TimmEncoder:
        self._first_stages()
        tapped = copy.copy(self)
        tapped.has_taps = True
        return tapped

    def _first_stages(self) -> EncoderCut:
        if self._cut is None:
            raise self._not_cut()
        return self._cut

    def _encode(self, backbone: nn.Module, images: Tensor) -> EncoderFeatures:
        maps: Tensor = self.feature_map(backbone.forward_features(images))  # type: ignore[operator]
        pooled: Tensor = backbone.forward_head(maps, pre_logits=True)  # type: ignore[operator]
        if self._layout.order == "channels first":
            spatial = maps.flatten(2).transpose(1, 2)
        elif self._layout.order == "channels last":
            spatial = maps.flatten(1, 2)
        else:
            spatial = maps[:, self._layout.num_prefix_tokens :]
        return EncoderFeatures(pooled, spatial)


def build_encoder(
    name: str,
    weights: str = "none",
    in_channels: int = 3,
    image_size: int | None = None,
    *,
    frozen_stages: int = 0,
    taps: bool = False,
) -> TimmEncoder:
    """Build the encoder that timm knows as `name`.

    weights: 'none', 'timm' (its model hub), a package (see `offline_weights.PACKAGES`) or a file.
    in_channels: 3, or 1 for grey images, where the pretrained first convolution is summed over colours.
    image_size: side of the square images; the encoder's own when not given. Encoders with a fixed grid of
        patches are built for that size, their position embeddings resampled.
    frozen_stages, taps: see `TimmEncoder`.
    """
    _check_name(name)
    check_image_shape(in_channels, image_size)
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
    size = image_size or own_size
    return TimmEncoder(backbone, name, in_channels, size, frozen_stages=frozen_stages, taps=taps)


def own_size(name: str) -> tuple[int, bool]:
    """The image side an encoder is made for, and whether it takes no other."""
    _check_name(name)
    config = timm.models.get_pretrained_cfg(name)
    if config is None:
        raise InputError(f"timm does not say what images encoder '{name}' takes; it cannot be used.")
    return config.input_size[-1], bool(config.fixed_input_size)


@functools.lru_cache(maxsize=8)
def count_stages(name: str) -> int:
    """How many stages an encoder has that can be frozen; InputError where it cannot be cut."""
    with torch.device("meta"):
        return len(find_stages(build_encoder(name).backbone, name).stages)


class TimmEncoders:
    """What recipes know of encoders, `kmcl.runs.Encoders`: of timm and of this package."""

    default_weights = staticmethod(default_weights)
    count_stages = staticmethod(count_stages)
    own_size = staticmethod(own_size)

    def made_for(self, weights: str | None) -> str | None:
        return PACKAGES[weights].encoder if weights in PACKAGES else None


class _Runner(nn.Module):
    """The last map and the pooled features, as a module: the form a dry run needs."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, images: Tensor) -> tuple[Any, Any]:
        maps = self.backbone.forward_features(images)  # type: ignore[operator]
        return maps, self.backbone.forward_head(maps, pre_logits=True)  # type: ignore[operator]


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


def _check_name(name: str) -> None:
    architecture, _, tag = name.partition(".")
    if not timm.is_model(architecture):
        known, wanted = [*ENCODERS, *timm.list_models()], architecture
    elif tag and name not in timm.list_pretrained(f"{architecture}.*"):
        known, wanted = timm.list_pretrained(f"{architecture}.*"), name
    else:
        return
    nearest = difflib.get_close_matches(wanted, known, n=3)
    hint = "timm.list_models() names those it knows; installed packages may add others."
    if nearest:
        hint = f"Did you mean {' or '.join(nearest)}?"
    raise InputError(f"timm knows no encoder '{name}'. {hint}")
