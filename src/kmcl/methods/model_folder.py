"""A trained model on disk: `model.safetensors` for the weights, `model.json` for everything else.

No pickle: loading a model runs no code from its files.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor

from kmcl.data.label_facts import read_label_facts
from kmcl.errors import InputError
from kmcl.losses import ObjectiveSettings
from kmcl.methods.interface import MethodOptions
from kmcl.methods.model_description import ModelDescription, check_description
from kmcl.methods.table import find_method
from kmcl.models.classifier import Classifier
from kmcl.models.encoder import build_encoder

__all__ = [
    "DESCRIPTION_FILE",
    "FORMAT",
    "WEIGHTS_FILE",
    "ModelDescription",
    "build_classifier",
    "load_model",
    "read_description",
    "save_description",
    "save_model",
]

FORMAT = "kmcl-model-1"
WEIGHTS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
LARGEST_DESCRIPTION = 64 * 2**20


def build_classifier(description: ModelDescription, weights: str = "none") -> Classifier:
    """The untrained classifier a description speaks of, its encoder with the given initial weights."""
    encoder = build_encoder(
        description.encoder, weights, in_channels=description.in_channels, image_size=description.image_size
    )
    encoder.mean = description.mean or encoder.mean
    encoder.std = description.std or encoder.std
    head = find_method(description.method).build_head(encoder, len(description.labels), description.options)
    return Classifier(encoder, head)


def save_model(folder: Path, classifier: Classifier, description: ModelDescription) -> None:
    """Write a model; an interrupted write leaves the one that was there."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in classifier.state_dict().items()}
    temporary = folder / f".{WEIGHTS_FILE}.partial"
    temporary.write_bytes(serialise(state, metadata={"format": FORMAT}))
    os.replace(temporary, folder / WEIGHTS_FILE)
    save_description(folder, description)


def save_description(folder: Path, description: ModelDescription) -> None:
    temporary = folder / f".{DESCRIPTION_FILE}.partial"
    temporary.write_text(
        json.dumps({"format": FORMAT, **asdict(description)}, indent=2) + "\n", encoding="utf-8"
    )
    os.replace(temporary, folder / DESCRIPTION_FILE)


def load_model(folder: Path) -> tuple[Classifier, ModelDescription]:
    """Read a model written by `save_model`, in evaluation mode.

    Its files may come from anybody: what they declare is compared, and nothing allocated for it, before any
    weight is read.
    """
    description = read_description(folder)
    path = folder / WEIGHTS_FILE
    declared = _declared_shapes(path)
    try:
        with torch.device("meta"):
            expected = build_classifier(description).state_dict()
    except InputError as error:
        raise InputError(f"{folder / DESCRIPTION_FILE}: {error}") from error
    except Exception as error:
        # Options of impossible types and sizes fail wherever a layer first uses them.
        raise InputError(f"{folder / DESCRIPTION_FILE}: no such model can be built: {error}") from error
    for name in dict.fromkeys([*expected, *declared]):
        wanted = tuple(expected[name].shape) if name in expected else None
        if declared.get(name) != wanted:
            raise InputError(
                f"{path}: tensor {name!r} has shape {declared.get(name)}; the model needs {wanted}"
            )
    state = _read_weights(path, expected)
    classifier = build_classifier(description)
    classifier.load_state_dict(state)
    return classifier.eval(), description


def _declared_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in the head of a file of weights, without the weights."""
    try:
        with safe_open(path, framework="pt") as file:
            return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: is no file of weights: {error}") from error


def _read_weights(path: Path, expected: dict[str, Tensor]) -> dict[str, Tensor]:
    try:
        state = load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: is no file of weights: {error}") from error
    for name, tensor in state.items():
        if tensor.dtype != expected[name].dtype:
            raise InputError(
                f"{path}: tensor {name!r} is {tensor.dtype}; the model needs {expected[name].dtype}"
            )
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise InputError(f"{path}: tensor {name!r} holds values that are not finite")
        if name.endswith("running_var") and bool((tensor < 0).any()):
            raise InputError(f"{path}: tensor {name!r} holds negative variances")
    return state


def read_description(folder: Path) -> ModelDescription:
    path = folder / DESCRIPTION_FILE
    try:
        if path.stat().st_size > LARGEST_DESCRIPTION:
            raise InputError(f"{path}: has more than {LARGEST_DESCRIPTION} bytes, which no description needs")
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: is no model: it has no {DESCRIPTION_FILE}") from None
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise InputError(f"{path}: is not a model of the format {FORMAT}")
    try:
        options = dict(values.pop("options"))
        objective = ObjectiveSettings(**options.pop("objective"))
        values["options"] = MethodOptions(**options, objective=objective)
        for name in ("labels", "thresholds", "temperatures", "biases", "mean", "std"):
            values[name] = None if values.get(name) is None else tuple(values[name])
        values["bands"], values["companions"] = read_label_facts(values)
        description = ModelDescription(**values)
        check_description(description)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: does not describe a model: {error}") from error
    return description
