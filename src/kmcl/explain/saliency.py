"""Grad-CAM: which part of an image is evidence for a label, for convolutional and transformer encoders.

    heat = ReLU( Σ_c (mean over positions of ∂logit_k/∂A_c) A_c )

A is the last feature map before pooling, or where that is smaller than 4 x 4 (small images) the last one that
is not. In a transformer whose logit depends on the class token alone, the final patch tokens have no
gradient; there A is the input of the last block's attention.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from kmcl.encoders import Encoder
from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values
from kmcl.models.classifier import Classifier

LEAST_GRID = 4
PAIRS_AT_ONCE = 16


def label_heat(
    classifier: Classifier, images: npt.NDArray[np.uint8], rows: list[int], labels: list[int]
) -> Values:
    """P x G x G heat of label `labels[p]` in image `rows[p]`, each map scaled to a highest value of 1.

    images: B x size x size x 3, at the classifier's own size. A map is all 0 where nothing is evidence for
    the label.
    """
    try:
        from captum.attr import LayerGradCam  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise InputError("saliency needs the package captum: pip install 'kmcl[reports]'") from None
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    # The pixels require a gradient, so that maps of frozen stages have one too.
    pixels = pixels.to(next(classifier.parameters()).device).requires_grad_()
    maps = []
    with tap_feature_map(classifier, pixels[:1]) as grid:
        explainer = LayerGradCam(lambda batch: classifier(batch).logits, grid)
        for start in range(0, len(rows), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            heat = explainer.attribute(pixels[rows[part]], labels[part], relu_attributions=True)
            maps.append(heat.detach()[:, 0].double().cpu())
    if not maps:
        return np.empty((0, 1, 1))
    heat = torch.cat(maps)
    highest = heat.amax(dim=(1, 2), keepdim=True)
    return np.asarray((heat / highest.clamp_min(torch.finfo(torch.float64).tiny)).numpy())


def enlarge(heat: Values, height: int, width: int) -> Values:
    """G x G heat at an image's size, interpolated linearly between the centres of its cells."""
    grid = torch.from_numpy(np.ascontiguousarray(heat))[None, None]
    large = functional.interpolate(grid, size=(height, width), mode="bilinear", align_corners=False)
    return np.asarray(large[0, 0].numpy())


class _Grid(nn.Module):
    """Routes a layer's output through `cells`, as B x C x G x G whatever the layer's own layout."""

    def __init__(self, num_channels: int, num_patches: int) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.num_patches = num_patches
        self.cells = nn.Identity()

    def forward(self, output: Tensor) -> Tensor:
        # Cloned: later layers may modify in place what `cells` must keep.
        if output.ndim == 4 and output.shape[1] == self.num_channels:
            return torch.clone(self.cells(output))
        if output.ndim == 4:
            return torch.clone(self.cells(output.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        side = math.isqrt(self.num_patches)
        prefix, patches = output[:, : -self.num_patches], output[:, -self.num_patches :]
        cells = patches.transpose(1, 2).reshape(len(output), -1, side, side)
        return torch.cat([prefix, self.cells(cells).flatten(2).transpose(1, 2)], dim=1)


@contextmanager
def tap_feature_map(classifier: Classifier, image: Tensor) -> Iterator[nn.Module]:
    """A module through which the encoder's feature map passes while the context is open."""
    encoder = classifier.encoder
    seen: list[Tensor] = []
    handle = encoder.feature_map.register_forward_hook(lambda module, inputs, output: seen.append(output))
    try:
        with torch.no_grad():
            num_patches = encoder(classifier.normalise(image)).spatial.shape[1]
    finally:
        handle.remove()
    if not seen:
        raise InputError(f"encoder '{encoder.name}' does not expose its feature map, which saliency needs")
    maps = seen[0]
    layer, num_channels = _choose_layer(encoder, maps, image.shape[-1])
    if maps.ndim == 3 and math.isqrt(num_patches) ** 2 != num_patches:
        raise InputError(
            f"encoder '{encoder.name}' has {num_patches} patches, which is not a square number: "
            "saliency cannot place them"
        )
    tap = _Grid(num_channels, num_patches)
    handle = layer.register_forward_hook(lambda module, inputs, output: tap(output))
    try:
        yield tap.cells
    finally:
        handle.remove()


def _choose_layer(encoder: Encoder, maps: Tensor, image_size: int) -> tuple[nn.Module, int]:
    """The module whose output is explained, and its number of channels."""
    backbone, last = encoder.backbone, encoder.feature_map
    if maps.ndim == 3:
        blocks: Any = getattr(backbone, "blocks", None)
        before_attention = getattr(blocks[-1], "norm1", last) if blocks else last
        return before_attention, maps.shape[2]
    channels_first = maps.shape[1] == encoder.spatial_dim
    side = maps.shape[2] if channels_first else maps.shape[1]
    if side >= LEAST_GRID:
        return last, encoder.spatial_dim
    feature_info: Any = getattr(backbone, "feature_info", None)
    for stage in reversed(list(feature_info or [])):
        if image_size // stage["reduction"] >= LEAST_GRID and "module" in stage:
            try:
                return backbone.get_submodule(stage["module"]), stage["num_chs"]
            except AttributeError:
                break
    return last, encoder.spatial_dim
