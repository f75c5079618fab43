"""Weights from a file or any other set of named tensors: read without running code, fitted to a network."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import timm
from safetensors import SafetensorError
from torch import Tensor, nn

from kmcl.errors import InputError

__all__ = ["architecture_of", "classifier_of", "file_state", "fitted"]


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
