"""Runs: settings and where they come from, folder, dataset and guarantee of a run. Without torch."""

from kmcl.runs.folder import RunFolder
from kmcl.runs.presets import PRESETS
from kmcl.runs.resolution import flat_values, resolve_settings, settings_from_values
from kmcl.runs.settings import (
    DataSettings,
    EncoderSettings,
    EvaluationSettings,
    MachineSettings,
    OptimisationSettings,
    RecipeSettings,
    TrackingSettings,
    TrainingSettings,
)

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
    "settings_from_values",
]
