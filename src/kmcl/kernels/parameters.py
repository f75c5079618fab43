"""The arguments and types of a kernel's formulas: the interface of a kernel family."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from kmcl.shapes import Float


class KernelParameters(NamedTuple):
    """The kernels of a batch of images, one per label.

    means:          B x L, or B x L x D
    variances:      B x L or B x L x D, with a label axis of 1 where all labels share them
    feature_dim:    D
    exponent_scale: multiplies log-kernels and log-similarities
    """

    means: Float[Tensor, "B L *D"]
    variances: Float[Tensor, "B L_or_1 *D_or_none"]
    feature_dim: int
    exponent_scale: float


LogKernel = Callable[[Tensor, KernelParameters], Tensor]
"""B x L log-kernels at each image's own features (B x D), times `exponent_scale`."""

LogSimilarity = Callable[[Tensor, Tensor, Tensor, Tensor, int], Tensor]
"""Log-similarity from means p, variances p, means q, variances q and D; `exponent_scale` is not applied.

Means and variances end with the axis D where the family has one; their leading dimensions broadcast.
"""

PairwiseSimilarity = Callable[[KernelParameters, KernelParameters, Tensor, Tensor], Tensor]
"""P x C log-similarities from anchors, candidates, P anchor rows and P sorted labels.

That of `labels[p]`'s kernel in anchor `anchor_rows[p]` with that label's in every candidate, times
`exponent_scale`.
"""
