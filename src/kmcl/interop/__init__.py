"""What other programs need: checkpoints that the authors of KMCL and ASL released; tables of Ray, Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.interop.ray import score_dataset
from kmcl.interop.released_datasets import RELEASED_DATASETS
from kmcl.interop.table_scoring import TableScorer
from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.interop.released import import_released

__all__ = ["RELEASED_DATASETS", "TableScorer", "import_released", "score_dataset"]

# An exported model scores tables without torch, which this loads.
__getattr__ = lazy_names(__name__, {"import_released": "kmcl.interop.released"})
