"""`small_convnet`: an encoder for small pictures, registered with timm beside its own.

The encoders of the field halve an image five times; of 64 pixels that leaves a map of 2 x 2, in which small
objects are lost. This one halves it three times and takes the maximum over positions: five convolutions,
0.3 million weights, trained from nothing on two cores in a minute or two.
"""

from __future__ import annotations

from typing import Any

from timm.layers.adaptive_avgmax_pool import SelectAdaptivePool2d
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from torch import Tensor, nn

WIDTHS_AND_STRIDES = ((24, 2), (48, 2), (64, 1), (128, 2), (128, 1))


class SmallConvNet(nn.Module):
    """Convolutions with batch norm and ReLU, then pooling, behind the interface of a timm model."""

    def __init__(self, in_chans: int = 3, num_classes: int = 0, global_pool: str = "max") -> None:
        super().__init__()
        layers: list[nn.Module] = []
        width = in_chans
        for next_width, stride in WIDTHS_AND_STRIDES:
            layers.append(nn.Conv2d(width, next_width, 3, stride, padding=1, bias=False))
            layers.append(nn.BatchNorm2d(next_width))
            layers.append(nn.ReLU(inplace=True))
            width = next_width
        self.num_features = self.head_hidden_size = width
        self.num_classes = num_classes
        self.convolutions = nn.Sequential(*layers)
        self.pool = SelectAdaptivePool2d(pool_type=global_pool, flatten=True)
        self.classifier = nn.Linear(width, num_classes) if num_classes else nn.Identity()

    def forward_features(self, images: Tensor) -> Tensor:
        maps: Tensor = self.convolutions(images)
        return maps

    def forward_head(self, maps: Tensor, pre_logits: bool = False) -> Tensor:
        pooled: Tensor = self.pool(maps)
        return pooled if pre_logits else self.classifier(pooled)

    def forward(self, images: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(images))


default_cfgs = generate_default_cfgs(
    {
        "small_convnet.untrained": {
            "input_size": (3, 64, 64),
            "mean": (0.5, 0.5, 0.5),
            "std": (0.25, 0.25, 0.25),
            "num_classes": 0,
            "pool_size": (8, 8),
            "first_conv": "convolutions.0",
            "classifier": "classifier",
        }
    }
)


@register_model
def small_convnet(pretrained: bool = False, **options: Any) -> nn.Module:
    """What `timm.create_model("small_convnet")` builds."""
    model: nn.Module = build_model_with_cfg(SmallConvNet, "small_convnet", pretrained, **options)
    return model
