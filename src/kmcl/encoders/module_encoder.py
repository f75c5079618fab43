"""A user's own module as an encoder."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from kmcl.data.normalisation import check_image_shape
from kmcl.encoders.interface import Encoder, EncoderFeatures, dry_run
from kmcl.errors import InputError
from kmcl.shapes import Float

__all__ = ["ModuleEncoder", "is_module_name", "module_name", "module_required"]

_PREFIX = "module:"


class ModuleEncoder(Encoder):
    """Any module that gives a feature map.

    module: takes normalised images B x C x H x W and gives a feature map B x D x H x W, tokens B x T x D or
        `EncoderFeatures`. Of the first two, `pooled` is the mean over positions.
    image_size: side of the square images.
    mean, std: one value per input channel, of the normalisation the module expects.
    feature_dim: the width D; where it is not given, the module's attribute `feature_dim` or `num_features`,
        or what a run on the meta device shows.
    name: how a saved model refers to it, "module:" and the class where it is not given.
    """

    def __init__(
        self,
        module: nn.Module,
        image_size: int,
        *,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        feature_dim: int | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__()
        if len(mean) != len(std):
            raise InputError(f"mean and std must have a value per channel; got {len(mean)} and {len(std)}")
        check_image_shape(len(mean), image_size)
        self.name = name or module_name(module)
        self.in_channels = len(mean)
        self.input_size = image_size
        self.mean = tuple(mean)
        self.std = tuple(std)
        self.feature_dim, self.spatial_dim = _find_widths(
            module, self.name, len(mean), image_size, feature_dim
        )
        self.backbone = module
        self.feature_map = nn.Identity()

    def forward(self, images: Float[Tensor, "B C H W"]) -> EncoderFeatures:
        """Encode normalised images."""
        output = self.backbone(images)
        if isinstance(output, EncoderFeatures):
            return output
        maps: Tensor = self.feature_map(output)
        spatial = maps.flatten(2).transpose(1, 2) if maps.ndim == 4 else maps
        return EncoderFeatures(spatial.mean(dim=1), spatial)


def module_name(module: nn.Module) -> str:
    """ "module:" and the import path of the module's class."""
    return f"{_PREFIX}{type(module).__module__}.{type(module).__qualname__}"


def is_module_name(name: str) -> bool:
    """Whether the encoder of that name is a user's own class, which a saved model does not hold."""
    return name.startswith(_PREFIX)


def module_required(name: str) -> InputError:
    """For a model that was to be loaded by the name of its encoder alone."""
    path = name.removeprefix(_PREFIX)
    example = f"encoder={path.rpartition('.')[2]}()"
    return InputError(
        f"the model's encoder is the user's own class {path}; pass it, as in kmcl.load(path, {example})"
    )


def _find_widths(
    module: nn.Module, name: str, in_channels: int, image_size: int, feature_dim: int | None
) -> tuple[int, int]:
    declared = feature_dim
    for attribute in ("feature_dim", "num_features"):
        value = getattr(module, attribute, None)
        declared = value if declared is None and isinstance(value, int) else declared
    try:
        output = dry_run(module, in_channels, image_size)
    except Exception as error:  # a user's code: anything may be what a run without values stumbles over
        if declared is not None:
            return declared, declared
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"encoder '{name}' cannot be run on {in_channels} x {image_size} x {image_size} images without "
            f"values to find its width ({reason}); give feature_dim"
        ) from error
    found, spatial = _widths_of(output, name)
    if declared is not None and declared != found:
        raise InputError(f"feature_dim of encoder '{name}' is {declared}, but its features have {found}")
    return found, spatial


def _widths_of(output: Any, name: str) -> tuple[int, int]:
    if isinstance(output, EncoderFeatures):
        return output.pooled.shape[1], output.spatial.shape[2]
    if not isinstance(output, Tensor):
        found = type(output).__name__
    elif output.ndim in (3, 4):
        width = output.shape[1 if output.ndim == 4 else 2]
        return width, width
    else:
        found = f"a tensor of shape {tuple(output.shape)}"
    raise InputError(
        f"encoder '{name}' must give a feature map B x D x H x W, tokens B x T x D or EncoderFeatures; "
        f"it gives {found}"
    )
