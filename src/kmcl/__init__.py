"""Multi-label image classifiers that know which labels go together and how sure they are."""

from __future__ import annotations

from kmcl.errors import InputError
from kmcl.kernels import KernelMixture
from kmcl.losses import KMCLObjective, ObjectiveSettings
from kmcl.models import KernelMixtureHead

__version__ = "0.1.0.dev0"

__all__ = [
    "InputError",
    "KMCLObjective",
    "KernelMixture",
    "KernelMixtureHead",
    "ObjectiveSettings",
    "__version__",
]
