"""Features of frozen stages: computed once for each view of each image, stored, and read as batches."""

from kmcl.features.views import views_of_epoch

__all__ = ["views_of_epoch"]
