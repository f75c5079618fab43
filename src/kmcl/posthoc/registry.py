"""The table of post-hoc parts. A new part is a module with its class, its options in `kmcl.options.posthoc`,
and an entry in both tables.

Other packages add theirs by the entry-point group `kmcl.posthoc`.
"""

from __future__ import annotations

from kmcl.posthoc.frozen_gp import FrozenFeatureGP
from kmcl.posthoc.interface import PosthocPart
from kmcl.posthoc.kernel_vote import KernelVote
from kmcl.posthoc.unfamiliarity import Unfamiliarity
from kmcl.registry import Registry

PARTS: Registry[type[PosthocPart]] = Registry(
    "post-hoc part",
    "kmcl.posthoc",
    {"frozen_gp": FrozenFeatureGP, "kernel_vote": KernelVote, "unfamiliarity": Unfamiliarity},
    type,
)


def find_part(name: str) -> type[PosthocPart]:
    """The class of the part called `name`."""
    return PARTS.find(name)
