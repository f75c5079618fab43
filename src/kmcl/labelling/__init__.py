"""What helps to label images: labels that are likely to be wrong or missing, the images to label next, and
new labels for a trained model.
"""

from kmcl.labelling.audit import Audit, Finding, audit_dataset
from kmcl.labelling.audit_page import WrittenAudit
from kmcl.labelling.chosen_files import Selection
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
    "Selection",
    "WrittenAudit",
    "add_label",
    "audit_dataset",
    "choose_images",
    "correct_labels",
    "pretrained_extractor",
]
