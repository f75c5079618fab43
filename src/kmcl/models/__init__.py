"""The classifier, its description and its folder."""

from kmcl.models.classifier import Classifier
from kmcl.models.complexity import Complexity, EncoderCount, measure_complexity
from kmcl.models.folder import (
    FittedPart,
    ModelDescription,
    build_classifier,
    load_model,
    read_description,
    save_model,
)
from kmcl.models.folding import fold_batch_norms
from kmcl.models.method_complexity import MeasuredMethod, measure_method
from kmcl.models.published_complexity import ComparedComplexity, PublishedComplexity, published_counterpart

__all__ = [
    "Classifier",
    "ComparedComplexity",
    "Complexity",
    "EncoderCount",
    "FittedPart",
    "MeasuredMethod",
    "ModelDescription",
    "PublishedComplexity",
    "build_classifier",
    "fold_batch_norms",
    "load_model",
    "measure_complexity",
    "measure_method",
    "published_counterpart",
    "read_description",
    "save_model",
]
