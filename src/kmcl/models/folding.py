"""Batch normalisation folded into the convolution before it: the same network, sooner done."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.hooks import RemovableHandle

from kmcl.models.classifier import Classifier, HeadOutput
from kmcl.models.torchvision_operators import declare_missing_operators

declare_missing_operators()
from timm.layers.norm_act import BatchNormAct2d  # noqa: E402

TOLERANCE = 1e-3
"""Of what the head gives, against the network as it was. Folding moves it by rounding: by 1e-5 as a
rule, by some 1e-4 in a deep network of random weights."""


@torch.no_grad()
def fold_batch_norms(classifier: Classifier) -> Classifier:
    """A copy, for prediction, whose normalisations are part of the convolutions wherever that is possible.

    Where the copy gives something else than the original (a network that uses the output of such a
    convolution twice), the original is returned.
    """
    folded = deepcopy(classifier).eval()
    size = folded.encoder.input_size
    noise = torch.randint(0, 256, (2, 3, size, size), generator=torch.Generator().manual_seed(0))
    images = noise.to(next(folded.parameters()).device, torch.uint8)
    expected = folded(images)
    names = {module: name for name, module in folded.named_modules()}
    for convolution, norm in _pairs(folded, images):
        folded.set_submodule(names[convolution], fuse_conv_bn_eval(convolution, norm))
        folded.set_submodule(names[norm], _rest_of(norm))
    return folded if _agree(folded(images), expected) else classifier


def _rest_of(norm: nn.BatchNorm2d) -> nn.Module:
    """What a normalisation does besides: those of timm may bring dropout and an activation along."""
    if isinstance(norm, BatchNormAct2d):
        return nn.Sequential(norm.get_submodule("drop"), norm.get_submodule("act"))
    return nn.Identity()


def _agree(output: HeadOutput, expected: HeadOutput) -> bool:
    """Features too: an untrained head gives the same logits whatever they are."""
    pairs = [(output.logits, expected.logits), (output.features, expected.features)]
    if output.sigma is not None and expected.sigma is not None:
        pairs.append((output.sigma, expected.sigma))
    return all(torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE) for one, other in pairs)


def _pairs(classifier: Classifier, images: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Each convolution whose output a batch normalisation takes as it is."""
    outputs: list[tuple[nn.Conv2d, Tensor]] = []  # held, so that no other tensor takes their identity
    pairs: list[tuple[nn.Conv2d, nn.BatchNorm2d]] = []

    def on_output(module: nn.Conv2d, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        outputs.append((module, output))

    def on_input(module: nn.BatchNorm2d, inputs: tuple[Tensor, ...]) -> None:
        makers = [convolution for convolution, output in outputs if output is inputs[0]]
        pairs.extend((convolution, module) for convolution in makers)

    handles: list[RemovableHandle] = []
    for module in classifier.modules():
        if isinstance(module, nn.Conv2d):
            handles.append(module.register_forward_hook(on_output))
        elif isinstance(module, nn.BatchNorm2d) and module.track_running_stats:
            handles.append(module.register_forward_pre_hook(on_input))
    try:
        classifier(images)
    finally:
        for handle in handles:
            handle.remove()
    return pairs
