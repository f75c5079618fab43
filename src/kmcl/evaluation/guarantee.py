"""What the thresholds of a model promise: the wish, as `--guarantee` takes it, and what val could support."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, Self, get_args

from kmcl.errors import InputError, suggest

Kind = Literal["recall", "precision", "found"]
KINDS: tuple[Kind, ...] = get_args(Kind)
PRECISION_CONFIDENCE = 0.9
"""Precision is not monotone in the threshold, so nothing is known of it in expectation."""

EXAMPLE = "recall=0.9, precision=0.8, found=0.9 or recall=0.9,confidence=0.95"

_RATES = {
    "recall": "of the images that have a label, at least {level} are found, for each label",
    "precision": "of the images where a label is predicted, at least {level} have it, for each label",
    "found": "of the labels of an image, at least {level} are found on average",
}


@dataclass(frozen=True)
class GuaranteeWish:
    """A rate that thresholds are to reach on images they were not chosen on.

    kind:       recall: share of the images with a label where it is predicted, for each label
                precision: share of the images where a label is predicted that have it, for each label
                found: share of an image's labels that are predicted, mean over images
    level:      the rate, between 0 and 1
    confidence: how probable it is that the rate is reached, over the choice of the val images; None: the
                rate is reached in expectation
    """

    kind: Kind
    level: float
    confidence: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                f"a guarantee must be of {', '.join(KINDS)}; got {self.kind!r}"
                f"{suggest(str(self.kind), KINDS)}, as in {EXAMPLE}"
            )
        if self.kind == "precision" and self.confidence is None:
            object.__setattr__(self, "confidence", PRECISION_CONFIDENCE)
        for name in ("level", "confidence"):
            value = getattr(self, name)
            is_number = type(value) in (int, float) and math.isfinite(value)
            if not (is_number and 0 < value < 1) and not (name == "confidence" and value is None):
                what = self.kind if name == "level" else name
                raise InputError(f"the {what} of a guarantee must be above 0 and below 1; got {value}")

    @classmethod
    def parse(cls, text: str) -> GuaranteeWish:
        """From what `--guarantee` takes: recall=0.9, or recall=0.9,confidence=0.95."""
        values: dict[str, float] = {}
        for part in text.split(","):
            name, separator, number = (piece.strip() for piece in part.partition("="))
            try:
                value = float(number)
            except ValueError:
                value = math.nan
            if not separator or math.isnan(value) or name in values:
                raise InputError(f"a guarantee is given as {EXAMPLE}; got {text!r}")
            values[name] = value
        confidence = values.pop("confidence", None)
        if len(values) != 1:
            raise InputError(f"a guarantee is of one rate, as in {EXAMPLE}; got {text!r}")
        kind: Any = next(iter(values))
        return cls(kind, values[kind], confidence)

    def __str__(self) -> str:
        sure = "" if self.confidence is None else f",confidence={self.confidence:g}"
        return f"{self.kind}={self.level:g}{sure}"


@dataclass(frozen=True)
class Guarantee(GuaranteeWish):
    """What the thresholds chosen on val promise for images like those of val.

    num_images: images of val it was chosen on
    num_groups: groups of these images, each counting once; None where images count
    needed:     images of val with the label (groups that have one) that it takes at least
    not_given:  labels that val could not support it for; their thresholds are chosen as without it
    """

    num_images: int = 0
    num_groups: int | None = None
    needed: int = 0
    not_given: tuple[str, ...] = ()

    @property
    def wish(self) -> GuaranteeWish:
        return GuaranteeWish(self.kind, self.level, self.confidence)

    def check_labels(self, labels: tuple[str, ...]) -> None:
        """Raise InputError where the numbers or the labels cannot be those of a model with these labels."""
        counts = (self.num_images, self.needed, 0 if self.num_groups is None else self.num_groups)
        if any(type(count) is not int or count < 0 for count in counts):
            raise InputError(f"the numbers of a guarantee must be counts; got {counts}")
        if not isinstance(self.not_given, tuple) or not set(self.not_given) <= set(labels):
            raise InputError(f"the labels of a guarantee must be the model's; got {self.not_given!r:.80}")

    def in_words(self, labels: tuple[str, ...]) -> str:
        """A sentence or two for people, about a model with these labels."""
        rate = _RATES[self.kind].format(level=f"{100 * self.level:g} %")
        if set(self.not_given) == set(labels):
            return f"No guarantee {self.wish}: {self.what_it_takes()}."
        sense = (
            "in expectation"
            if self.confidence is None
            else f"with {100 * self.confidence:g} % confidence over the choice of val"
        )
        groups = "" if self.num_groups is None else f" in {self.num_groups} groups, each counting once"
        words = (
            f"Guarantee: {rate}, {sense}. It was chosen on {self.num_images} images of val{groups}, and "
            "holds for images like these."
        )
        if self.not_given:
            words += f" It is not given for {', '.join(self.not_given)}: {self.what_it_takes()}."
        return words

    def what_it_takes(self) -> str:
        """Why val does not support it."""
        unit = "images" if self.num_groups is None else "groups"
        if self.kind == "precision":
            return (
                f"it takes at least {self.needed} {unit} of val where the label is predicted, and a model "
                "that is precise enough there"
            )
        having = "a label" if self.kind == "found" else "the label"
        return f"it takes at least {self.needed} {unit} of val that have {having}"

    @classmethod
    def from_json(cls, values: object) -> Self:
        if not isinstance(values, dict) or set(values) - {field.name for field in fields(cls)}:
            raise InputError(f"a guarantee must be an object with the fields of one; got {values!r:.80}")
        try:
            return cls(**{**values, "not_given": tuple(values.get("not_given", ()))})
        except TypeError as error:
            raise InputError(f"a guarantee must have a kind and a level: {error}") from None
