"""What other programs need: checkpoints that the authors of KMCL and ASL released; tables of Ray, Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.interop.ray import score_dataset
    from kmcl.interop.released import import_released
    from kmcl.interop.released_datasets import RELEASED_DATASETS
    from kmcl.interop.table_scoring import TableScorer

__all__ = ["RELEASED_DATASETS", "TableScorer", "import_released", "score_dataset"]

_HOMES = {
    "RELEASED_DATASETS": "kmcl.interop.released_datasets",
    "TableScorer": "kmcl.interop.table_scoring",
    "import_released": "kmcl.interop.released",
    "score_dataset": "kmcl.interop.ray",
}

__getattr__ = lazy_names(__name__, _HOMES)
