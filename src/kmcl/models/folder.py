"""A trained model on disk: `model.safetensors` for the weights, `model.json` for everything else.

No pickle: loading a model runs no code from its files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from safetensors.torch import save as serialise
from torch import Tensor, nn

from kmcl.data.normalisation import IDENTITY
from kmcl.encoders import open_encoder
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, check_numbers
from kmcl.methods import find_method
from kmcl.models.classifier import Classifier
from kmcl.options import read_options
from kmcl.options.methods import MethodOptions
from kmcl.posthoc import find_part
from kmcl.posthoc.added_labels import SOURCES, AddedLabels, AddedSizes
from kmcl.storage.atomic import write_bytes, write_text

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

FORMAT = "kmcl-model-2"
FORMER_FORMAT = "kmcl-model-1"
WEIGHTS_FILE = "model.safetensors"
DESCRIPTION_FILE = "model.json"
LARGEST_DESCRIPTION = 64 * 2**20


def build_classifier(
    description: ModelDescription,
    weights: str = "none",
    encoder: nn.Module | None = None,
    *,
    taps: bool = False,
) -> Classifier:
    """The untrained classifier of a description, its encoder with the given initial weights.

    encoder: the user's own module, for a description that names its class
    taps:    the encoder returns the outputs of its frozen stages even if no post-hoc part needs them
    """
    parts = {part.name: find_part(part.name) for part in description.posthoc}
    opened = open_encoder(
        description.encoder if encoder is None else encoder,
        weights,
        in_channels=description.in_channels,
        image_size=description.image_size,
        frozen_stages=description.frozen_stages,
        taps=taps or any(part.uses_taps(description.frozen_stages) for part in parts.values()),
    )
    opened.mean = description.mean or opened.mean
    opened.std = description.std or opened.std
    num_labels = description.num_trained_labels
    head = find_method(description.method.name).build_head(opened, num_labels, description.method)
    held = {part.name: parts[part.name](opened, num_labels, **part.sizes) for part in description.posthoc}
    added = description.added
    return Classifier(opened, head, held, None if added is None else AddedLabels(added, held[added.source]))


def save_model(folder: Path, classifier: Classifier, description: ModelDescription) -> None:
    """Write a model; an interrupted write leaves the previous one."""
    state = {name: tensor.detach().cpu().contiguous() for name, tensor in classifier.state_dict().items()}
    write_bytes(folder / WEIGHTS_FILE, serialise(state, metadata={"format": FORMAT}))
    save_description(folder, description)


def remove_unlisted_parts(folder: Path) -> None:
    """Drop the weights of parts that the description does not list: a kill came between the two files."""
    listed = tuple(f"posthoc.{part.name}." for part in read_description(folder).posthoc)
    path = folder / WEIGHTS_FILE
    unlisted = [name for name in _declared_shapes(path) if name.startswith("posthoc.")]
    if any(not name.startswith(listed) for name in unlisted):
        kept = {name: tensor for name, tensor in load_file(path).items() if not name.startswith("posthoc.")}
        write_bytes(path, serialise(kept, metadata={"format": FORMAT}))


def save_description(folder: Path, description: ModelDescription) -> None:
    text = json.dumps({"format": FORMAT, **description.to_json()}, indent=2)
    write_text(folder / DESCRIPTION_FILE, text + "\n")


def load_model(
    folder: Path, encoder: nn.Module | None = None, *, taps: bool = False
) -> tuple[Classifier, ModelDescription]:
    """Read a model written by `save_model`, in evaluation mode; `taps` as in `build_classifier`.

    encoder: for a model whose encoder is the user's own class: an instance of it, which gets the weights

    The files may be untrusted: the shapes they declare are checked, without allocating them, before any
    weight is read.
    """
    description = read_description(folder)
    path = folder / WEIGHTS_FILE
    declared = _declared_shapes(path)
    try:
        with torch.device("meta"):
            expected = build_classifier(description, encoder=encoder).state_dict()
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
    classifier = build_classifier(description, encoder=encoder, taps=taps)
    classifier.load_state_dict(state)
    return classifier.eval(), description


def _declared_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes in the header of a weights file, without reading the weights."""
    try:
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is not a regular file")
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
        if path.exists() and not path.is_file():
            raise InputError(f"{path}: is not a regular file")
        if path.stat().st_size > LARGEST_DESCRIPTION:
            raise InputError(f"{path}: has more than {LARGEST_DESCRIPTION} bytes, which no description needs")
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder}: is no model: it has no {DESCRIPTION_FILE}") from None
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from error
    if isinstance(values, dict) and values.get("format") == FORMER_FORMAT:
        raise InputError(
            f"{path}: was written by a version of kmcl before 0.1.0; train it again with this one"
        )
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise InputError(f"{path}: is not a model of the format {FORMAT}")
    try:
        values["rules"] = LabelRules.from_json(values["rules"])
        values["method"] = read_options(values["method"])
        values["posthoc"] = read_posthoc(values["posthoc"])
        values["added"] = None if values.get("added") is None else AddedSizes(**values["added"])
        for name in ("mean", "std"):
            values[name] = None if values.get(name) is None else tuple(values[name])
        description = ModelDescription(**values)
        check_description(description)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: does not describe a model: {error}") from error
    return description


LARGEST_IMAGE_SIZE = 8192
MOST_STAGES = 1000
LARGEST_SIZE = 10_000_000
LARGEST_VECTOR = 1_000_000


@dataclass(frozen=True)
class FittedPart:
    """A post-hoc part that a model holds: its name and the sizes an empty one is built from."""

    name: str
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class ModelDescription:
    """The components of a classifier, and how its scores become decisions.

    rules:         the labels, and how their scores become probabilities and decisions
    method:        the options of its method
    encoder:       a name of timm or of a plug-in, or the class of the user's own module
    image_size:    side of the square images; None for the encoder's own, and for feature vectors
    in_channels:   3, or 1 for grey images; how many numbers a feature vector has
    frozen_stages: first stages of the encoder that were not trained
    posthoc:       the post-hoc parts it holds, in order
    added:         labels that it got after training, the last ones of the rules; None without such
    mean, std:     of pixels between 0 and 1, per input channel, to normalise with; None for the encoder's own
    """

    rules: LabelRules
    method: MethodOptions
    encoder: str
    image_size: int | None
    in_channels: int = 3
    frozen_stages: int = 0
    posthoc: tuple[FittedPart, ...] = ()
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    added: AddedSizes | None = None

    @property
    def num_trained_labels(self) -> int:
        """Labels of the head and the post-hoc parts."""
        return len(self.labels) - (0 if self.added is None else self.added.num_labels)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.rules.labels

    def to_json(self) -> dict[str, Any]:
        """Its fields as JSON takes them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["rules"] = self.rules.to_json()
        values["method"] = self.method.model_dump(mode="json")
        values["posthoc"] = [asdict(part) for part in self.posthoc]
        if self.added is None:
            del values["added"]  # as versions wrote that could not add labels
        else:
            values["added"] = asdict(self.added)
        return values


def check_description(description: ModelDescription) -> None:
    """Raise InputError for wrong types, lengths and ranges: the values may come from an untrusted file."""
    if not isinstance(description.encoder, str):
        raise InputError(f"encoder must be a name; got {description.encoder!r}")
    size = description.image_size
    if size is not None and (type(size) is not int or not 1 <= size <= LARGEST_IMAGE_SIZE):
        raise InputError(f"image_size must be between 1 and {LARGEST_IMAGE_SIZE}; got {size!r}")
    channels = description.in_channels
    if description.encoder == IDENTITY:
        if type(channels) is not int or not 1 <= channels <= LARGEST_VECTOR:
            raise InputError(
                f"in_channels must be 1 to {LARGEST_VECTOR}, the length of vectors; got {channels!r}"
            )
    elif type(channels) is not int or channels not in (1, 3):
        raise InputError(f"in_channels must be 1 or 3; got {channels!r}")
    if type(description.frozen_stages) is not int or not 0 <= description.frozen_stages <= MOST_STAGES:
        raise InputError(f"frozen_stages must be 0 to {MOST_STAGES}; got {description.frozen_stages!r}")
    for part in description.posthoc:
        for name, count in part.sizes.items():
            if type(count) is not int or not 0 <= count <= LARGEST_SIZE:
                raise InputError(f"posthoc: {name} of {part.name} must be 0 to {LARGEST_SIZE}; got {count!r}")
    if description.added is not None:
        _check_added(description, description.added)
    for name in ("mean", "std"):
        check_numbers(name, getattr(description, name), description.in_channels, positive=name == "std")


def _check_added(description: ModelDescription, added: AddedSizes) -> None:
    if added.source not in SOURCES or added.source not in {part.name for part in description.posthoc}:
        raise InputError(f"added: source must be a part that remembers images; got {added.source!r}")
    count, highest = added.num_labels, len(description.labels) - 1
    if type(count) is not int or not 1 <= count <= highest:
        raise InputError(f"added: num_labels must be 1 to {highest}; got {count!r}")


def read_posthoc(values: Any) -> tuple[FittedPart, ...]:
    """The parts of a model, from a list of mappings with `name` and `sizes`."""
    parts = tuple(FittedPart(value["name"], dict(value["sizes"])) for value in values)
    for part in parts:
        find_part(part.name)
    return parts
