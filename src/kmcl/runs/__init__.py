"""Runs: settings and where they come from, folder, dataset and guarantee of a run. Without torch."""

from kmcl.runs.folder import RunFolder
from kmcl.runs.planning import DataRule, Encoders, Facts, Machine, Throughput
from kmcl.runs.recipes import RECIPES, Choice, Recipe
from kmcl.runs.resolution import (
    PRESETS,
    Given,
    flat_values,
    read_given,
    resolve_settings,
    settings_from_values,
)
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
    "RECIPES",
    "Choice",
    "DataRule",
    "DataSettings",
    "EncoderSettings",
    "Encoders",
    "EvaluationSettings",
    "Facts",
    "Given",
    "Machine",
    "MachineSettings",
    "OptimisationSettings",
    "Recipe",
    "RecipeSettings",
    "RunFolder",
    "Throughput",
    "TrackingSettings",
    "TrainingSettings",
    "flat_values",
    "read_given",
    "resolve_settings",
    "settings_from_values",
]
