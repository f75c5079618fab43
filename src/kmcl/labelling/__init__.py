"""What helps to label images: labels that are likely to be wrong or missing, the images to label next, and
new labels for a trained model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.labelling.audit import Audit, Finding, audit_dataset
    from kmcl.labelling.findings_table import Corrections, correct_labels
    from kmcl.labelling.image_features import FeatureExtractor, ImageFeatures, pretrained_extractor
    from kmcl.labelling.label_addition import AddedLabel, add_label
    from kmcl.labelling.next_images import Chosen, ChosenImage, choose_images

__all__ = [
    "AddedLabel",
    "Audit",
    "Chosen",
    "ChosenImage",
    "Corrections",
    "FeatureExtractor",
    "Finding",
    "ImageFeatures",
    "add_label",
    "audit_dataset",
    "choose_images",
    "correct_labels",
    "pretrained_extractor",
]

_HOMES = {
    "AddedLabel": "kmcl.labelling.label_addition",
    "Audit": "kmcl.labelling.audit",
    "Chosen": "kmcl.labelling.next_images",
    "ChosenImage": "kmcl.labelling.next_images",
    "Corrections": "kmcl.labelling.findings_table",
    "FeatureExtractor": "kmcl.labelling.image_features",
    "Finding": "kmcl.labelling.audit",
    "ImageFeatures": "kmcl.labelling.image_features",
    "add_label": "kmcl.labelling.label_addition",
    "audit_dataset": "kmcl.labelling.audit",
    "choose_images": "kmcl.labelling.next_images",
    "correct_labels": "kmcl.labelling.findings_table",
    "pretrained_extractor": "kmcl.labelling.image_features",
}

__getattr__ = lazy_names(__name__, _HOMES)
