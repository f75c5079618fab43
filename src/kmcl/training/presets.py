"""Presets: named starting points of the settings, by flat names (see `kmcl.training.resolution`)."""

from __future__ import annotations

from typing import Any

from kmcl.methods.kmcl import PRESETS as KMCL_PRESETS

_AS_PRINTED: dict[str, Any] = {
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

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "paper": _AS_PRINTED,
    "released": _AS_PRINTED,
}
"""`default`, the recommended settings; `paper`, as printed; `released`, the weights of the authors' code."""


def preset_options(preset: str) -> dict[str, Any]:
    """Method options that a preset sets, for every method that has an option of that name."""
    return KMCL_PRESETS[preset].model_dump(exclude={"name"}, exclude_unset=True)
