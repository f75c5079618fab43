"""Grad-CAM: which part of an image speaks for a label, for convolutional and transformer encoders.

    heat = ReLU( Σ_c (mean over positions of ∂logit_k/∂A_c) A_c )

A is the last feature map before pooling, or where that is smaller than 4 x 4 (small images) the last one that
is not. In a transformer whose logit depends on the class token alone, the last tokens of the patches have no
gradient; A is there what the last block's attention reads.
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

from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values
from kmcl.models.classifier import Classifier

LEAST_GRID = 4
PAIRS_AT_ONCE = 16


def label_heat(
    classifier: Classifier, images: npt.NDArray[np.uint8], rows: list[int], labels: list[int]
) -> Values:
    """P x G x G heat of label `labels[p]` in image `rows[p]`, each map scaled to a highest value of 1.

    images: B x size x size x 3, at the classifier's own size. A map is all 0 where nothing speaks for the
    label.
    """
    try:
        from captum.attr import LayerGradCam  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        raise InputError("saliency needs the package captum: pip install 'kmcl[reports]'") from None
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    pixels = pixels.to(next(classifier.parameters()).device)
    maps = []
    with _tap(classifier, pixels[:1]) as grid:
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
    """G x G heat at an image's size, between its cells' centres linearly."""
    grid = torch.from_numpy(np.ascontiguousarray(heat))[None, None]
    large = functional.interpolate(grid, size=(height, width), mode="bilinear", align_corners=False)
    return np.asarray(large[0, 0].numpy())


class _Grid(nn.Module):
    """Passes a layer's output on through `cells`, as B x C x G x G whatever the layer's own order."""

    def __init__(self, num_channels: int, num_patches: int) -> None:
        super().__init__()
        self.num_channels = num_channels
        self.num_patches = num_patches
        self.cells = nn.Identity()

    def forward(self, output: Tensor) -> Tensor:
        # Cloned: what follows may work in place on what `cells` has to remember.
        if output.ndim == 4 and output.shape[1] == self.num_channels:
            return torch.clone(self.cells(output))
        if output.ndim == 4:
            return torch.clone(self.cells(output.permute(0, 3, 1, 2)).permute(0, 2, 3, 1))
        side = math.isqrt(self.num_patches)
        prefix, patches = output[:, : -self.num_patches], output[:, -self.num_patches :]
        cells = patches.transpose(1, 2).reshape(len(output), -1, side, side)
        return torch.cat([prefix, self.cells(cells).flatten(2).transpose(1, 2)], dim=1)


@contextmanager
def _tap(classifier: Classifier, image: Tensor) -> Iterator[nn.Module]:
    """A module through which the encoder's feature map passes as long as the context is open."""
    backbone: Any = classifier.encoder.backbone
    with torch.no_grad():
        maps: Tensor = backbone.forward_features(classifier.normalise(image))
        num_patches = classifier.encoder(classifier.normalise(image)).spatial.shape[1]
    layer, num_channels = _choose_layer(backbone, maps, classifier.encoder.spatial_dim, image.shape[-1])
    if maps.ndim == 3 and math.isqrt(num_patches) ** 2 != num_patches:
        raise InputError(
            f"encoder '{classifier.encoder.name}' has {num_patches} patches, which is no square: "
            "saliency cannot place them"
        )
    tap = _Grid(num_channels, num_patches)
    if layer is not None:
        handle = layer.register_forward_hook(lambda module, inputs, output: tap(output))
        try:
            yield tap.cells
        finally:
            handle.remove()
        return
    original = backbone.forward_features
    backbone.forward_features = lambda *arguments, **options: tap(original(*arguments, **options))
    try:
        yield tap.cells
    finally:
        del backbone.forward_features  # the class's own method shows again


def _choose_layer(
    backbone: Any, maps: Tensor, spatial_dim: int, image_size: int
) -> tuple[nn.Module | None, int]:
    """The module whose output is explained, None for the last feature map itself, and its channels."""
    if maps.ndim == 3:
        blocks = getattr(backbone, "blocks", None)
        before_attention = getattr(blocks[-1], "norm1", None) if blocks else None
        return before_attention, maps.shape[2]
    channels_first = maps.shape[1] == spatial_dim
    side = maps.shape[2] if channels_first else maps.shape[1]
    if side >= LEAST_GRID:
        return None, spatial_dim
    for stage in reversed(list(getattr(backbone, "feature_info", None) or [])):
        if image_size // stage["reduction"] >= LEAST_GRID and "module" in stage:
            try:
                return backbone.get_submodule(stage["module"]), stage["num_chs"]
            except AttributeError:
                break
    return None, spatial_dim
