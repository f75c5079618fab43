"""Models of other programs: the checkpoints that the authors of KMCL and ASL released."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.interop.released import import_released
    from kmcl.interop.released_datasets import RELEASED_DATASETS

__all__ = ["RELEASED_DATASETS", "import_released"]

_HOMES = {
    "RELEASED_DATASETS": "kmcl.interop.released_datasets",
    "import_released": "kmcl.interop.released",
}

__getattr__ = lazy_names(__name__, _HOMES)
