"""What helps to label images: labels that are likely to be wrong or missing, and the images to label next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.labelling.audit import Audit, Finding, audit_dataset
    from kmcl.labelling.findings_table import Corrections, correct_labels
    from kmcl.labelling.image_features import FeatureExtractor, ImageFeatures, pretrained_extractor
    from kmcl.labelling.next_images import Chosen, ChosenImage, choose_images

__all__ = [
    "Audit",
    "Chosen",
    "ChosenImage",
    "Corrections",
    "FeatureExtractor",
    "Finding",
    "ImageFeatures",
    "audit_dataset",
    "choose_images",
    "correct_labels",
    "pretrained_extractor",
]

_HOMES = {
    "Audit": "kmcl.labelling.audit",
    "Chosen": "kmcl.labelling.next_images",
    "ChosenImage": "kmcl.labelling.next_images",
    "Corrections": "kmcl.labelling.findings_table",
    "FeatureExtractor": "kmcl.labelling.image_features",
    "Finding": "kmcl.labelling.audit",
    "ImageFeatures": "kmcl.labelling.image_features",
    "audit_dataset": "kmcl.labelling.audit",
    "choose_images": "kmcl.labelling.next_images",
    "correct_labels": "kmcl.labelling.findings_table",
    "pretrained_extractor": "kmcl.labelling.image_features",
}

__getattr__ = lazy_names(__name__, _HOMES)
