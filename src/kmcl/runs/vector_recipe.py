"""The recipe for feature vectors: there is no encoder to choose, freeze or train, only the head on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kmcl.data.normalisation import IDENTITY
from kmcl.data.readers.registry import READERS
from kmcl.durations import spell_duration
from kmcl.errors import InputError

LEARNING_RATE = 3e-3
EPOCHS = 20

FIXED: dict[str, Any] = {
    "encoder": IDENTITY,
    "weights": "none",
    "frozen_stages": 1,
    "cached_views": 0,
    "augmentation": "none",
    "image_size": None,
    "normalisation": "encoder",
    "grey": False,
    "layer_decay": 1.0,
    "head_epochs": 0,
}
"""Settings that are about images or an encoder, and the only value that each can have."""


def names_vectors(spec: object) -> bool:
    """Whether a dataset spec names feature vectors; of what is in memory only the dataset itself says it."""
    kind = str(spec).partition(":")[0].strip()
    return kind in READERS and READERS[kind].gives_vectors


def choose_for_vectors(values: Mapping[str, Any], seconds: float) -> tuple[dict[str, Any], str]:
    """The completed values of a training, whose learning rate and epochs the run chooses; what is told."""
    chosen = vector_values(values)
    to_choose = tuple(name for name in ("learning_rate", "weight_decay", "epochs") if name not in values)
    chosen |= {"budget": seconds, "to_choose": to_choose}
    tried = "learning rates are tried, then " if "learning_rate" in to_choose else ""
    line = (
        f"recipe cached: the features are given, so no image is read; {tried}the head is trained on them and "
        f"post-hoc parts are fitted, within {spell_duration(seconds)} (--budget)."
    )
    return chosen, line


def vector_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Complete values for feature vectors; refuse settings of images and encoders."""
    recipe = values.get("recipe", "auto")
    if recipe not in ("auto", "cached"):
        raise InputError(
            f"recipe {recipe}: is for images; for feature vectors, which have no encoder to train, leave out "
            "--recipe, and --preset too"
        )
    for name, only in FIXED.items():
        if values.get(name, only) not in (only, None):
            flag = f"--{name.replace('_', '-')}"
            raise InputError(
                f"{flag} {values[name]}: is about images or their encoder, and the data are feature vectors"
            )
    defaults = {"learning_rate": LEARNING_RATE, "epochs": EPOCHS}
    return defaults | dict(values) | FIXED | {"recipe": "cached"}
