"""Multi-label image classifiers that know which labels go together and how sure they are."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kmcl.errors import InputError

if TYPE_CHECKING:
    from kmcl.kernels import KernelMixture
    from kmcl.losses import KMCLObjective, ObjectiveSettings
    from kmcl.models import KernelMixtureHead
    from kmcl.serving import Predictor, load

__version__ = "0.1.0.dev0"

__all__ = [
    "InputError",
    "KMCLObjective",
    "KernelMixture",
    "KernelMixtureHead",
    "ObjectiveSettings",
    "Predictor",
    "__version__",
    "load",
]

_HOMES = {
    "KMCLObjective": "kmcl.losses",
    "KernelMixture": "kmcl.kernels",
    "KernelMixtureHead": "kmcl.models",
    "ObjectiveSettings": "kmcl.losses",
    "Predictor": "kmcl.serving",
    "load": "kmcl.serving",
}


def __getattr__(name: str) -> object:
    """Import what is used when it is used: the command line answers without waiting for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kmcl' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    return value
