"""The description of a trained model: everything but its weights, and the validation of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from kmcl.data.normalisation import IDENTITY
from kmcl.errors import InputError
from kmcl.evaluation.label_rules import LabelRules, check_numbers
from kmcl.options.methods import MethodOptions
from kmcl.posthoc import find_part
from kmcl.posthoc.added_labels import SOURCES, AddedSizes

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
