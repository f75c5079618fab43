"""Grad-CAM of several labels of an image, and all logits, from one pass through the encoder.

The same maps as `label_heat`, which runs the encoder once for each label. Here nothing before the feature map
keeps a graph, and each further label costs a gradient of the head alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values
from kmcl.explain.saliency import tap_feature_map
from kmcl.models.classifier import Classifier

IMAGES_AT_ONCE = 8


class Evidence(NamedTuple):
    """What B images give.

    heats:  B x K x G x G, of each image's K labels, each map scaled to a highest value of 1; all 0 where
            nothing is evidence for the label.
    logits: B x L, of all labels.
    """

    heats: Values
    logits: Values


def label_evidence(
    classifier: Classifier, images: npt.NDArray[np.uint8], labels: Sequence[Sequence[int]]
) -> Evidence:
    """Heat of the same number K of labels for each image.

    images: B x size x size x 3, at the classifier's own size
    labels: B x K
    """
    chosen = np.asarray(labels, dtype=np.int64)
    if chosen.ndim != 2 or len(chosen) != len(images) or not len(images):
        raise InputError(f"labels must be one row for each of {len(images)} images, got {chosen.shape}")
    device = next(classifier.parameters()).device
    pixels = torch.from_numpy(images).permute(0, 3, 1, 2)
    wanted = torch.from_numpy(chosen).to(device)
    found = []
    with tap_feature_map(classifier, pixels[:1].to(device).float() / 255) as cells:
        for start in range(0, len(images), IMAGES_AT_ONCE):
            part = slice(start, start + IMAGES_AT_ONCE)
            found.append(_of_batch(classifier, cells, pixels[part].to(device), wanted[part]))
    return Evidence(*(np.concatenate(each) for each in zip(*found, strict=True)))


def _of_batch(classifier: Classifier, cells: nn.Module, pixels: Tensor, labels: Tensor) -> Evidence:
    maps: list[Tensor] = []
    handle = cells.register_forward_hook(lambda module, inputs, output: _start_graph(output, maps))
    try:
        with torch.no_grad():  # restores the state that `_start_graph` changes
            logits: Tensor = classifier(pixels).logits
    finally:
        handle.remove()
    heats = []
    for wanted in labels.T:
        total = logits.gather(1, wanted[:, None]).sum()
        (gradient,) = torch.autograd.grad(total, maps[-1], retain_graph=True)
        heats.append((gradient.mean(dim=(2, 3), keepdim=True) * maps[-1].detach()).sum(dim=1).relu())
    heat = torch.stack(heats, dim=1).double()
    highest = heat.amax(dim=(2, 3), keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    return Evidence((heat / highest).cpu().numpy(), logits.detach().double().cpu().numpy())


def _start_graph(output: Tensor, maps: list[Tensor]) -> Tensor:
    """The feature map as the start of the graph of gradients; what came before it keeps none."""
    maps.append(output.detach().requires_grad_())
    torch.set_grad_enabled(True)
    return maps[-1]
