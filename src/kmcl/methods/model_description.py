"""Everything of a trained model but its weights, and which values make sense."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from kmcl.data.companions import Companions
from kmcl.data.label_facts import Bands, check_label_facts
from kmcl.errors import InputError
from kmcl.methods.interface import MethodOptions

LARGEST_IMAGE_SIZE = 8192
MOST_LABELS = 100_000


@dataclass(frozen=True)
class ModelDescription:
    """What a classifier is made of, and how its scores become decisions.

    image_size:   side of the square images; None for the encoder's own
    mean, std:    of pixels between 0 and 1, per input channel, to normalise with; None for the encoder's own
    thresholds:   a label is predicted where its probability reaches its threshold, chosen on val
    temperatures, biases: logit / temperature + bias is a label's calibrated logit, fitted on val
    bands:        how well val knows each label's calibrated probability, see `ProbabilityBands.to_rows`
    companions:   labels that usually come along with each label in training, see `find_companions`
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
    bands: Bands | None = None
    companions: Companions | None = None


def check_description(description: ModelDescription) -> None:
    """Refuse values of wrong types, lengths and ranges, as a file from anybody may hold them."""
    labels = description.labels
    if not 1 <= len(labels) <= MOST_LABELS:
        raise InputError(f"labels must be 1 to {MOST_LABELS}; got {len(labels)}")
    for name, value in (("method", description.method), ("encoder", description.encoder)):
        if not isinstance(value, str):
            raise InputError(f"{name} must be a name; got {value!r}")
    wrong = [label for label in labels if not isinstance(label, str) or not label]
    if wrong or len(set(labels)) != len(labels):
        raise InputError(f"labels must be different names; got {wrong[0] if wrong else 'one twice'!r}")
    size = description.image_size
    if size is not None and (type(size) is not int or not 1 <= size <= LARGEST_IMAGE_SIZE):
        raise InputError(f"image_size must be between 1 and {LARGEST_IMAGE_SIZE}; got {size!r}")
    if type(description.in_channels) is not int or description.in_channels not in (1, 3):
        raise InputError(f"in_channels must be 1 or 3; got {description.in_channels!r}")
    for name in ("thresholds", "temperatures", "biases"):
        _check_numbers(name, getattr(description, name), len(labels), positive=name == "temperatures")
    for name in ("mean", "std"):
        _check_numbers(name, getattr(description, name), description.in_channels, positive=name == "std")
    check_label_facts(description.bands, description.companions, len(labels))


def _check_numbers(name: str, values: tuple[float, ...] | None, count: int, *, positive: bool) -> None:
    if values is None:
        return
    if len(values) != count:
        raise InputError(f"{name} must be {count} numbers; got {len(values)}")
    for value in values:
        if type(value) not in (int, float) or not math.isfinite(value) or (positive and value <= 0):
            wanted = "finite and above 0" if positive else "finite"
            raise InputError(f"{name} must be {wanted}; got {value!r}")
