"""Parts that are fitted after training, for any classifier: they correct its logits, or say how unlike the
training images an image is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kmcl.lazy_names import lazy_names

if TYPE_CHECKING:
    from kmcl.posthoc.added_labels import AddedLabels, AddedSizes
    from kmcl.posthoc.frozen_gp import FrozenFeatureGP
    from kmcl.posthoc.interface import PosthocPart
    from kmcl.posthoc.kernel_vote import KernelVote
    from kmcl.posthoc.options import PosthocOptions
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

_HOMES = {
    "PARTS": "kmcl.posthoc.registry",
    "AddedLabels": "kmcl.posthoc.added_labels",
    "AddedSizes": "kmcl.posthoc.added_labels",
    "FrozenFeatureGP": "kmcl.posthoc.frozen_gp",
    "KernelVote": "kmcl.posthoc.kernel_vote",
    "PosthocOptions": "kmcl.posthoc.options",
    "PosthocPart": "kmcl.posthoc.interface",
    "Unfamiliarity": "kmcl.posthoc.unfamiliarity",
    "find_part": "kmcl.posthoc.registry",
}

__getattr__ = lazy_names(__name__, _HOMES)
