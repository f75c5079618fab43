"""The head of KMCL and its loss.

The paper's head is the kernel mixture alone. Label queries over the feature map can be added as a second
branch.
"""

from __future__ import annotations

from torch import Tensor, nn

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.losses import kmcl_objective
from kmcl.methods.interface import LossTerms
from kmcl.methods.kmcl.method import KmclOptions
from kmcl.methods.kmcl.mixture_head import KernelMixtureHead
from kmcl.methods.kmcl.query_branch import QueryBranch
from kmcl.methods.output import HeadOutput


class KmclHead(nn.Module):
    """The paper's KMM on the pooled features and, if `query_width` is above 0, label queries.

    logit_k = logit of π_k, or its mean with the query's logit where there are queries
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: KmclOptions) -> None:
        super().__init__()
        self.kernel_mixture = KernelMixtureHead(
            encoder.feature_dim,
            num_labels,
            options.kernel,
            init=options.head_init,
            normalise_dimension=options.normalise_dimension,
        )
        self.query_branch: QueryBranch | None = None
        if options.query_width:
            self.query_branch = QueryBranch(encoder.spatial_dim, num_labels, options.query_width)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        mixture = self.kernel_mixture(encoded.pooled)
        if self.query_branch is None:
            return HeadOutput(mixture.logits, encoded.pooled, mixture)
        branches = (mixture.logits, self.query_branch(encoded.spatial))
        return HeadOutput((branches[0] + branches[1]) / 2, encoded.pooled, mixture, branches)


def kmcl_loss(output: HeadOutput, targets: Tensor, options: KmclOptions) -> LossTerms:
    """Eq. 8; where the head has branches, the classification term is the mean of theirs."""
    if output.mixture is None:
        raise ValueError("the KMCL loss needs a head with a kernel mixture")
    terms = kmcl_objective(output.features, output.mixture, targets, options.objective, output.branches)
    named = {
        "reconstruction": terms.reconstruction,
        "classification": terms.classification,
        "contrastive": terms.contrastive,
    }
    return LossTerms(terms.total, named)
