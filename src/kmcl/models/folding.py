"""Batch normalisation folded into the preceding convolution: the same function, computed faster."""

from __future__ import annotations

from copy import deepcopy

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.hooks import RemovableHandle

from kmcl.methods.output import HeadOutput
from kmcl.models.classifier import Classifier

TOLERANCE = 1e-3
"""Tolerance on the head's output against the original network. Folding changes it by rounding: usually by
1e-5, by some 1e-4 in a deep network of random weights.
"""


@torch.no_grad()
def fold_batch_norms(classifier: Classifier) -> Classifier:
    """A copy, for prediction, with normalisations merged into convolutions wherever possible.

    If the copy's output differs from the original's (a network that uses the output of such a convolution
    twice), the original is returned.
    """
    if classifier.encoder.takes_vectors:  # there is nothing to fold
        return classifier
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
    """What follows within a normalisation layer: timm's may include dropout and an activation."""
    if isinstance(norm, BatchNormAct2d):
        return nn.Sequential(norm.get_submodule("drop"), norm.get_submodule("act"))
    return nn.Identity()


def _agree(output: HeadOutput, expected: HeadOutput) -> bool:
    """Features are compared too: an untrained head may give the same logits for any features."""
    pairs = [(output.logits, expected.logits), (output.features, expected.features)]
    if output.sigma is not None and expected.sigma is not None:
        pairs.append((output.sigma, expected.sigma))
    if output.unfamiliarity is not None and expected.unfamiliarity is not None:
        pairs.append((output.unfamiliarity, expected.unfamiliarity))
    if output.feature_summary is not None and expected.feature_summary is not None:
        pairs.append((output.feature_summary, expected.feature_summary))
    return all(torch.allclose(one, other, rtol=TOLERANCE, atol=TOLERANCE) for one, other in pairs)


def _pairs(classifier: Classifier, images: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Each convolution whose output feeds a batch normalisation directly."""
    outputs: list[tuple[nn.Conv2d, Tensor]] = []  # referenced, so that no other tensor reuses their id
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
