"""Features of frozen stages: computed once for each view of each image, stored, and read as batches."""

from kmcl.features.runtime import FrozenRuntimes
from kmcl.features.views import views_of_epoch

__all__ = ["FrozenRuntimes", "views_of_epoch"]
