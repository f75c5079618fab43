"""From the tensor names and arithmetic of the ASL code base to timm's TResNet.

    body.conv1.0.weight             body.conv1.conv.weight              a convolution
    body.conv1.1.running_mean       body.conv1.bn.running_mean          the activated batch norm after it
    body.layer2.0.conv1.0.0.weight  body.layer2.0.conv1.conv.weight     one nested with its blur filter
    body.layer1.0.se.fc1.weight     the same

Its batch norm is the in-place activated one, which multiplies with |weight| + eps instead of weight; timm's
is torch's own, so |weight| + eps becomes the weight. Blur filters are constants and in neither file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from kmcl.errors import InputError

BATCH_NORM_EPSILON = 1e-5
"""The default of the in-place activated batch norm, which all released networks keep."""

_CONVOLUTION_WITH_NORM = re.compile(r"(conv\d+|downsample\.\d+)(?:\.0)?\.([01])\.(\w+)$")
_BLOCK = re.compile(r"body\.layer([1-4])\.(\d+)\.")


class _Architecture(NamedTuple):
    """blocks: in the four stages. width: channels of the first convolution."""

    blocks: tuple[int, ...]
    width: int
    has_bottlenecks_throughout: bool


ENCODERS = {
    _Architecture((3, 4, 11, 3), 64, False): "tresnet_m",
    _Architecture((4, 5, 18, 3), 76, False): "tresnet_l",
    _Architecture((4, 5, 24, 3), 83, False): "tresnet_xl",
    _Architecture((3, 4, 23, 3), 64, True): "tresnet_v2_l",
}
"""Which of timm's networks has that many blocks; the TResNet-L of the KMCL paper is the second version."""


def find_encoder(body: Mapping[str, Tensor]) -> str:
    """The timm name of the TResNet that tensors named `body.*` belong to."""
    stem = body.get("body.conv1.0.weight")
    if stem is None or stem.ndim != 4:
        raise InputError("it has no first convolution 'body.conv1.0.weight', so it is not a TResNet")
    blocks: list[set[int]] = [set(), set(), set(), set()]
    for name in body:
        if match := _BLOCK.match(name):
            blocks[int(match[1]) - 1].add(int(match[2]))
    found = _Architecture(
        tuple(len(numbers) for numbers in blocks), stem.shape[0], "body.layer1.0.conv3.0.weight" in body
    )
    if found not in ENCODERS:
        raise InputError(
            f"it is not one of the TResNets of timm: {found.blocks} blocks, {found.width} first channels, "
            f"{'only' if found.has_bottlenecks_throughout else 'not only'} bottlenecks; "
            f"known are {', '.join(ENCODERS.values())}"
        )
    return ENCODERS[found]


def rename_body(body: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors under timm's names, batch-norm weights in timm's arithmetic."""
    renamed = {}
    for name, tensor in body.items():
        match = _CONVOLUTION_WITH_NORM.search(name)
        if match is None:
            renamed[name] = tensor
            continue
        kind = "conv" if match[2] == "0" else "bn"
        new_name = f"{name[: match.start()]}{match[1]}.{kind}.{match[3]}"
        if kind == "bn" and match[3] == "weight":
            tensor = tensor.float().abs() + BATCH_NORM_EPSILON  # half precision would round the sum
        renamed[new_name] = tensor
    return renamed
