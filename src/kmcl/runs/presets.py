"""Presets: named starting points of the settings, by flat names (see `kmcl.runs.resolution`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kmcl.options.methods import KMCL_PRESETS

_AS_PRINTED: dict[str, Any] = {
    "recipe": "paper",
    "encoder": "tresnet_m",
    "augmentation": "paper",
    "posthoc": "none",
    "epochs": 40,
    "learning_rate": 2e-4,
    "weight_decay": 1e-4,
    "warmup_fraction": 0.2,
    "moving_average": 0.9997,
    "moving_average_warmup": False,
}

PUBLISHED_IMAGE_SIZES = {"tresnet_m": 224, "tresnet_v2_l": 448}
"""Of the paper's two models; for other encoders `paper` and `released` leave it to the encoder."""

RELEASED_NORMALISATIONS = {
    "chestxray14": "0.50576189,1",
    "adp": "0.81233799,0.64032477,0.81902153,0.18129702,0.25731668,0.16800649",
}
"""The constants of the authors' code, for the medical datasets; the others have ImageNet's."""

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "kernels": {},
    "paper": _AS_PRINTED,
    "released": _AS_PRINTED,
}
"""`default`, the recommended settings; `kernels`, the same with the paper's kernels and loss; `paper`, as
printed; `released`, as the authors' code.
"""


def preset_values(preset: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a preset, those included that depend on the encoder and the data that are chosen.

    The paper's image size is that of its model, and its normalisation that of "computer vision and medical
    dataset respectively" (hyper-parameter table).
    """
    values = dict(PRESETS[preset])
    if not values:
        return values
    values["image_size"] = PUBLISHED_IMAGE_SIZES.get(chosen.get("encoder") or values["encoder"])
    data = str(chosen.get("data")).partition(":")[0].strip()
    values["normalisation"] = "imagenet"
    if data in RELEASED_NORMALISATIONS:
        values["normalisation"] = RELEASED_NORMALISATIONS[data] if preset == "released" else "dataset"
    return values


def preset_options(preset: str) -> dict[str, Any]:
    """Method options that a preset sets, for every method that has an option of that name."""
    return KMCL_PRESETS[preset].model_dump(exclude={"name"}, exclude_unset=True)
