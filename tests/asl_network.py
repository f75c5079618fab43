"""A network with the names and the arithmetic of the ASL code base, in plain torch layers, for comparison.

Written from the published descriptions: TResNet (Ridnik et al. 2021) and in-place activated batch
normalisation (Rota Bulò et al. 2018), whose scale is |weight| + eps.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

LAYOUTS = {
    "tresnet_m": ((3, 4, 11, 3), 64, False),
    "tresnet_l": ((4, 5, 18, 3), 76, False),
    "tresnet_v2_l": ((3, 4, 23, 3), 64, True),
}


class ActivatedNorm(nn.Module):
    """Normalise, scale by |weight| + eps, shift, and bend negative values by `slope` (1: not at all)."""

    def __init__(self, channels: int, slope: float) -> None:
        super().__init__()
        self.slope = slope
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        mean, variance, weight, bias = (
            v.view(1, -1, 1, 1) for v in (self.running_mean, self.running_var, self.weight, self.bias)
        )
        y = (x - mean) / torch.sqrt(variance + 1e-5) * (weight.abs() + 1e-5) + bias
        return torch.where(y >= 0, y, self.slope * y)


class Blur(nn.Module):
    """Half the resolution through a 1-2-1 filter; reflects at the border; no parameters."""

    def forward(self, x: Tensor) -> Tensor:
        line = torch.tensor([0.25, 0.5, 0.25], dtype=x.dtype)
        kernel = torch.outer(line, line).expand(x.shape[1], 1, 3, 3)
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), kernel, stride=2, groups=x.shape[1])


class Squeeze(nn.Module):
    def __init__(self, channels: int, reduced: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Conv2d(channels, reduced, 1), nn.Conv2d(reduced, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.fc2(torch.relu(self.fc1(x.mean(dim=(2, 3), keepdim=True)))))


def normed(before: int, after: int, size: int, slope: float) -> nn.Sequential:
    convolution = nn.Conv2d(before, after, size, padding=size // 2, bias=False)
    return nn.Sequential(convolution, ActivatedNorm(after, slope))


def strided(layer: nn.Sequential, stride: int) -> nn.Sequential:
    return layer if stride == 1 else nn.Sequential(layer, Blur())


class Block(nn.Module):
    def __init__(self, before: int, planes: int, stride: int, bottleneck: bool, squeeze: bool) -> None:
        super().__init__()
        after = 4 * planes if bottleneck else planes
        if bottleneck:
            self.conv1 = normed(before, planes, 1, 1e-3)
            self.conv2 = strided(normed(planes, planes, 3, 1e-3), stride)
            self.conv3 = normed(planes, after, 1, 1.0)
        else:
            self.conv1 = strided(normed(before, planes, 3, 1e-3), stride)
            self.conv2 = normed(planes, planes, 3, 1.0)
        if squeeze:
            self.se = Squeeze(planes, max(after // (8 if bottleneck else 4), 64))
        if stride == 2:
            pool = nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
            self.downsample = nn.Sequential(pool, normed(before, after, 1, 1.0))
        elif before != after:
            self.downsample = nn.Sequential(normed(before, after, 1, 1.0))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.downsample(x) if hasattr(self, "downsample") else x
        y = self.conv2(self.conv1(x))
        if hasattr(self, "se"):
            y = self.se(y)
        if hasattr(self, "conv3"):
            y = self.conv3(y)
        return torch.relu(y + shortcut)


class SpaceToDepth(nn.Module):
    """Each 4 x 4 square of pixels becomes 16 groups of channels, rows before columns."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x[:, :, row::4, column::4] for row in range(4) for column in range(4)], dim=1)


class AslNetwork(nn.Module):
    """`body`, and `head.fc` as classifier."""

    def __init__(self, layout: str, num_labels: int) -> None:
        super().__init__()
        blocks, width, bottlenecks = LAYOUTS[layout]
        self.body = nn.Sequential()
        self.body.add_module("SpaceToDepth", SpaceToDepth())
        self.body.add_module("conv1", normed(48, width, 3, 1e-2))
        before = width
        for stage, count in enumerate(blocks):
            is_bottleneck, planes, layer = bottlenecks or stage >= 2, width * 2**stage, nn.Sequential()
            for number in range(count):
                stride = 2 if stage > 0 and number == 0 else 1
                layer.append(Block(before, planes, stride, is_bottleneck, squeeze=stage < 3))
                before = 4 * planes if is_bottleneck else planes
            self.body.add_module(f"layer{stage + 1}", layer)
        self.head = nn.Sequential()
        self.head.add_module("fc", nn.Linear(before, num_labels))

    def features(self, x: Tensor) -> Tensor:
        return self.body(x).mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x))


class KmclNetwork(nn.Module):
    """`encoder`, with an unused classifier, and `kmm` with three linear layers."""

    def __init__(self, layout: str, num_labels: int) -> None:
        super().__init__()
        self.encoder = AslNetwork(layout, num_labels)
        width = self.encoder.head.fc.in_features
        self.kmm = nn.ModuleDict({name: nn.Linear(width, num_labels) for name in ("pi", "mean", "var")})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Features, probabilities, means and variances."""
        features = self.encoder.features(x)
        pi, mean, raw = (self.kmm[name](features) for name in ("pi", "mean", "var"))
        variance = torch.where(raw > 0, raw, raw.exp() - 1) + 2 + 1e-7
        return features, torch.sigmoid(pi), mean, variance


@torch.no_grad()
def randomise(network: nn.Module, seed: int) -> None:
    """Weights of both signs everywhere and statistics unlike their initial values, so nothing may be lost."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            fan_in = module.weight[0].numel()
            module.weight.copy_(torch.randn(module.weight.shape, generator=generator) / fan_in**0.5)
            if module.bias is not None:
                module.bias.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
        elif isinstance(module, ActivatedNorm):
            module.weight.copy_(0.8 * torch.randn(module.weight.shape, generator=generator))
            module.weight[:3] = torch.tensor([0.0, -1e-6, 1e-6])
            module.bias.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
            module.running_mean.copy_(0.1 * torch.randn(module.bias.shape, generator=generator))
            module.running_var.copy_(0.5 + torch.rand(module.bias.shape, generator=generator))
