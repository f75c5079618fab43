"""The losses, one file per equation: reconstruction (5), asymmetric (6), contrastive (7), objective (8); and
unknown labels.
"""

from kmcl.losses.arguments import NonFiniteError, check_inputs
from kmcl.losses.asymmetric import AsymmetricLoss, asymmetric_loss
from kmcl.losses.contrastive import Candidates, ContrastiveLoss, contrastive_loss
from kmcl.losses.distributed import gather_candidates
from kmcl.losses.objective import OBJECTIVES, KMCLObjective, ObjectiveSettings, ObjectiveTerms, kmcl_objective
from kmcl.losses.reconstruction import ReconstructionLoss, reconstruction_loss
from kmcl.losses.unknown_labels import complete_targets, largest_losses

__all__ = [
    "OBJECTIVES",
    "AsymmetricLoss",
    "Candidates",
    "ContrastiveLoss",
    "KMCLObjective",
    "NonFiniteError",
    "ObjectiveSettings",
    "ObjectiveTerms",
    "ReconstructionLoss",
    "asymmetric_loss",
    "check_inputs",
    "complete_targets",
    "contrastive_loss",
    "gather_candidates",
    "kmcl_objective",
    "largest_losses",
    "reconstruction_loss",
]
