"""The classifier, its description and its folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.models.classifier import Classifier
    from kmcl.models.complexity import Complexity, EncoderCount, measure_complexity
    from kmcl.models.description import FittedPart, ModelDescription
    from kmcl.models.folder import build_classifier, load_model, read_description, save_model
    from kmcl.models.folding import fold_batch_norms
    from kmcl.models.method_complexity import MeasuredMethod, measure_method
    from kmcl.models.published_complexity import (
        ComparedComplexity,
        PublishedComplexity,
        published_counterpart,
    )

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

_HOMES = {
    "Classifier": "kmcl.models.classifier",
    "ComparedComplexity": "kmcl.models.published_complexity",
    "Complexity": "kmcl.models.complexity",
    "EncoderCount": "kmcl.models.complexity",
    "FittedPart": "kmcl.models.description",
    "MeasuredMethod": "kmcl.models.method_complexity",
    "ModelDescription": "kmcl.models.description",
    "PublishedComplexity": "kmcl.models.published_complexity",
    "build_classifier": "kmcl.models.folder",
    "fold_batch_norms": "kmcl.models.folding",
    "load_model": "kmcl.models.folder",
    "measure_complexity": "kmcl.models.complexity",
    "measure_method": "kmcl.models.method_complexity",
    "published_counterpart": "kmcl.models.published_complexity",
    "read_description": "kmcl.models.folder",
    "save_model": "kmcl.models.folder",
}

__getattr__ = lazy_names(__name__, _HOMES)
