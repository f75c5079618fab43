"""Predictions in the form of Label Studio: a model's choices in the labeling interface of a project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

import numpy as np

from kmcl.errors import InputError
from kmcl.evaluation.ranking import Values

LONGEST_INTERFACE = 1_000_000
"""Characters of a labeling interface; that of 1,000 labels has about 40,000."""


@dataclass(frozen=True)
class ChoicesControl:
    """A tag of a labeling interface with which several labels of an image are chosen.

    name:     of the tag, `from_name` in results
    image:    the name of the image's tag, `to_name` in results
    data_key: the key of a task's data that has the image
    choices:  a label as people see it or as results name it, to the name in results
    """

    name: str
    image: str
    data_key: str
    choices: Mapping[str, str]


def find_controls(interface: str, labels: Sequence[str]) -> list[ChoicesControl]:
    """The tags `<Choices choice="multiple">` of a labeling interface (XML) that have a label, of one image.

    Choices of regions are no labels of the image, and a single choice cannot name several: neither counts.
    Where the interface shows several images, the first one with such a tag counts.
    """
    root = _parse(interface)
    images = {
        tag.get("name", ""): tag.get("value", "")[1:]
        for tag in root.iter("Image")
        if tag.get("value", "").startswith("$")
    }
    controls = []
    for tag in root.iter("Choices"):
        name, image = tag.get("name"), tag.get("toName", "")
        of_regions = tag.get("perRegion", "").lower() == "true"
        if name and image in images and tag.get("choice") == "multiple" and not of_regions:
            controls.append(ChoicesControl(name, image, images[image], _choices(tag)))
    if not controls:
        raise InputError(
            'the labeling interface needs <Choices choice="multiple"> whose toName is an <Image value="$...">'
        )
    suitable = [control for control in controls if any(label in control.choices for label in labels)]
    if not suitable:
        raise InputError(f"the labeling interface has none of the model's labels ({', '.join(labels)})")
    return [control for control in suitable if control.image == suitable[0].image]


def _parse(interface: str) -> ElementTree.Element:
    if len(interface) > LONGEST_INTERFACE:
        raise InputError(
            f"the labeling interface may have {LONGEST_INTERFACE:,} characters; it has {len(interface):,}"
        )
    if "<!DOCTYPE" in interface or "<!ENTITY" in interface:  # entities can grow without bound
        raise InputError("the labeling interface may not have a document type")
    try:
        return ElementTree.fromstring(interface)
    except (ElementTree.ParseError, ValueError) as error:
        raise InputError(f"the labeling interface is not valid XML: {error}") from error


def _choices(tag: ElementTree.Element) -> dict[str, str]:
    found: dict[str, str] = {}
    for choice in tag.iter("Choice"):
        value, alias = choice.get("value"), choice.get("alias")
        for name in (value, alias):
            if name:
                found.setdefault(name, alias or name)
    return found


def labels_without_choice(controls: Sequence[ChoicesControl], labels: Sequence[str]) -> list[str]:
    """The labels that the labeling interface lacks."""
    return [label for label in labels if not any(label in control.choices for control in controls)]


def make_prediction(
    controls: Sequence[ChoicesControl],
    labels: Sequence[str],
    probabilities: Values,
    present: np.typing.NDArray[np.bool_],
    model_version: str,
) -> dict[str, Any]:
    """The labels that the model finds in an image; those that no control has are left out.

    probabilities, present: L values of the image. The score of the prediction is the mean probability of the
             labels that it names, or the smallest probability of a label's absence where it names none.
    """
    known = np.array([any(label in control.choices for control in controls) for label in labels], dtype=bool)
    chosen = present & known
    score = 0.0
    if chosen.any():
        score = float(probabilities[chosen].mean())
    elif known.any():
        score = float((1 - probabilities[known]).min())
    named = [label for label, is_chosen in zip(labels, chosen, strict=True) if is_chosen]
    results = [
        {
            "from_name": control.name,
            "to_name": control.image,
            "type": "choices",
            "value": {"choices": [control.choices[label] for label in named if label in control.choices]},
        }
        for control in controls
    ]
    return {"model_version": model_version, "score": round(score, 4), "result": results}
