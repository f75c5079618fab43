"""A trained model on disk: `model.safetensors` for the weights, `model.json` for everything else.

No pickle: loading a model runs no code from its files.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialise

from kmcl.errors import InputError
from kmcl.losses import ObjectiveSettings
from kmcl.methods.interface import MethodOptions
from kmcl.methods.table import find_method
from kmcl.models.classifier import Classifier
from kmcl.models.encoder import build_encoder

FORMAT = "kmcl-model-1"
WEIGHTS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"


@dataclass(frozen=True)
class ModelDescription:
    """What a classifier is made of, and how its scores become decisions.

    image_size:   side of the square images; None for the encoder's own
    mean, std:    of pixels between 0 and 1, per input channel, to normalise with; None for the encoder's own
    thresholds:   a label is predicted where its probability reaches its threshold, chosen on val
    temperatures, biases: logit / temperature + bias is a label's calibrated logit, fitted on val
    """

    labels: tuple[str, ...]
    method: str
    encoder: str
    image_size: int | None
    in_channels: int = 3
    options: MethodOptions = field(default_factory=MethodOptions)
    thresholds: tuple[float, ...] | None = None
    temperatures: tuple[float, ...] | None = None
    biases: tuple[float, ...] | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


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
    """Read a model written by `save_model`, in evaluation mode."""
    description = read_description(folder)
    classifier = build_classifier(description)
    path = folder / WEIGHTS_FILE
    try:
        state = load_file(path)
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: is no file of weights: {error}") from error
    expected = classifier.state_dict()
    for name in [*expected, *state]:
        found, wanted = state.get(name), expected.get(name)
        if found is None or wanted is None or found.shape != wanted.shape:
            shapes = [None if tensor is None else tuple(tensor.shape) for tensor in (found, wanted)]
            raise InputError(f"{path}: tensor {name!r} has shape {shapes[0]}; the model needs {shapes[1]}")
        if found.is_floating_point() and not bool(torch.isfinite(found).all()):
            raise InputError(f"{path}: tensor {name!r} holds values that are not finite")
    classifier.load_state_dict(state)
    return classifier.eval(), description


def read_description(folder: Path) -> ModelDescription:
    path = folder / DESCRIPTION_FILE
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: is no model: it has no {DESCRIPTION_FILE}") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise InputError(f"{path}: is not a model of the format {FORMAT}")
    try:
        options = dict(values.pop("options"))
        objective = ObjectiveSettings(**options.pop("objective"))
        values["options"] = MethodOptions(**options, objective=objective)
        for name in ("labels", "thresholds", "temperatures", "biases"):
            values[name] = None if values[name] is None else tuple(values[name])
        return ModelDescription(**values)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: does not describe a model: {error}") from error
