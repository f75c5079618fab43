"""Training: settings, the Lightning task, run folders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.training.presets import PRESETS
    from kmcl.training.resolution import flat_values, resolve_settings, settings_from_values
    from kmcl.training.run_folder import RunFolder
    from kmcl.training.settings import (
        DataSettings,
        EncoderSettings,
        EvaluationSettings,
        MachineSettings,
        OptimisationSettings,
        RecipeSettings,
        TrackingSettings,
        TrainingSettings,
    )
    from kmcl.training.train import resume

__all__ = [
    "PRESETS",
    "DataSettings",
    "EncoderSettings",
    "EvaluationSettings",
    "MachineSettings",
    "OptimisationSettings",
    "RecipeSettings",
    "RunFolder",
    "TrackingSettings",
    "TrainingSettings",
    "flat_values",
    "resolve_settings",
    "resume",
    "settings_from_values",
]

_HOMES = {
    "PRESETS": "kmcl.training.presets",
    "DataSettings": "kmcl.training.settings",
    "EncoderSettings": "kmcl.training.settings",
    "EvaluationSettings": "kmcl.training.settings",
    "MachineSettings": "kmcl.training.settings",
    "OptimisationSettings": "kmcl.training.settings",
    "RecipeSettings": "kmcl.training.settings",
    "RunFolder": "kmcl.training.run_folder",
    "TrackingSettings": "kmcl.training.settings",
    "TrainingSettings": "kmcl.training.settings",
    "flat_values": "kmcl.training.resolution",
    "resolve_settings": "kmcl.training.resolution",
    "resume": "kmcl.training.train",
    "settings_from_values": "kmcl.training.resolution",
}

__getattr__ = lazy_names(__name__, _HOMES)
