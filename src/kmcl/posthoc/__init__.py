"""Parts that are fitted after training, for any classifier: they correct its logits, or say how unlike the
training images an image is.
"""

from kmcl.options.posthoc import PosthocOptions
from kmcl.posthoc.added_labels import AddedLabels, AddedSizes
from kmcl.posthoc.frozen_gp import FrozenFeatureGP
from kmcl.posthoc.interface import PosthocPart
from kmcl.posthoc.kernel_vote import KernelVote
from kmcl.posthoc.registry import PARTS, find_part
from kmcl.posthoc.unfamiliarity import Unfamiliarity

__all__ = [
    "PARTS",
    "AddedLabels",
    "AddedSizes",
    "FrozenFeatureGP",
    "KernelVote",
    "PosthocOptions",
    "PosthocPart",
    "Unfamiliarity",
    "find_part",
]
