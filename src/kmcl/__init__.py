"""Multi-label image classifiers that know which labels go together and how sure they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.errors import InputError
from kmcl.lazy_names import lazy_names
from kmcl.version import __version__

if TYPE_CHECKING:
    from kmcl.api import Run, add_label, compare, evaluate, export, predict, report, resume, train
    from kmcl.data import Dataset, open_dataset
    from kmcl.kernels import KernelMixture
    from kmcl.losses import KMCLObjective, ObjectiveSettings
    from kmcl.methods.kmcl import KernelMixtureHead
    from kmcl.serving import Predictor, load

__all__ = [
    "Dataset",
    "InputError",
    "KMCLObjective",
    "KernelMixture",
    "KernelMixtureHead",
    "ObjectiveSettings",
    "Predictor",
    "Run",
    "__version__",
    "add_label",
    "compare",
    "evaluate",
    "export",
    "load",
    "open_dataset",
    "predict",
    "report",
    "resume",
    "train",
]

_HOMES = {
    "Dataset": "kmcl.data",
    "KMCLObjective": "kmcl.losses",
    "KernelMixture": "kmcl.kernels",
    "KernelMixtureHead": "kmcl.methods.kmcl",
    "ObjectiveSettings": "kmcl.losses",
    "Predictor": "kmcl.serving",
    "Run": "kmcl.api",
    "add_label": "kmcl.api",
    "compare": "kmcl.api",
    "evaluate": "kmcl.api",
    "export": "kmcl.api",
    "load": "kmcl.serving",
    "open_dataset": "kmcl.data",
    "predict": "kmcl.api",
    "report": "kmcl.api",
    "resume": "kmcl.api",
    "train": "kmcl.api",
}

__getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
