"""Features of frozen stages: computed once for each view of each image, stored, and read as batches."""

from kmcl.features.batches import views_of_epoch
from kmcl.features.runtime import can_use_onnxruntime

__all__ = ["can_use_onnxruntime", "views_of_epoch"]
