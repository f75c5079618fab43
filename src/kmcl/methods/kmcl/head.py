"""The head of KMCL and its loss.

The paper's head is the kernel mixture alone. Label queries over the feature map can be added as a second
branch; and the kernels can be left out, which leaves a linear branch.
"""

from __future__ import annotations

from torch import Tensor, nn

from kmcl.encoders import Encoder, EncoderFeatures
from kmcl.losses import kmcl_objective
from kmcl.losses.arguments import check_inputs
from kmcl.losses.objective import classification_loss
from kmcl.methods.heads.linear import LinearHead
from kmcl.methods.interface import LossTerms
from kmcl.methods.kmcl.method import KmclOptions
from kmcl.methods.kmcl.mixture_head import KernelMixtureHead
from kmcl.methods.kmcl.query_branch import QueryBranch
from kmcl.methods.output import HeadOutput


class KmclHead(nn.Module):
    """The paper's KMM on the pooled features, or a linear branch, and, if `query_width` is above 0, label
    queries.

    logit_k = logit of π_k, or its mean with the query's logit where there are queries
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: KmclOptions) -> None:
        super().__init__()
        self.kernel_mixture: KernelMixtureHead | None = None
        self.linear: LinearHead | None = None
        if options.has_kernels:
            self.kernel_mixture = KernelMixtureHead(
                encoder.feature_dim,
                num_labels,
                options.kernel,
                init=options.head_init,
                normalise_dimension=options.normalise_dimension,
            )
        else:
            self.linear = LinearHead(encoder, num_labels, options)
        self.query_branch: QueryBranch | None = None
        if options.query_width:
            self.query_branch = QueryBranch(encoder.spatial_dim, num_labels, options.query_width)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        mixture = None if self.kernel_mixture is None else self.kernel_mixture(encoded.pooled)
        logits = mixture.logits if mixture is not None else self._linear_logits(encoded)
        if self.query_branch is None:
            return HeadOutput(logits, encoded.pooled, mixture)
        branches = (logits, self.query_branch(encoded.spatial))
        return HeadOutput((branches[0] + branches[1]) / 2, encoded.pooled, mixture, branches)

    def _linear_logits(self, encoded: EncoderFeatures) -> Tensor:
        if self.linear is None:
            raise RuntimeError("a head has either kernels or a linear branch")
        logits: Tensor = self.linear(encoded).logits
        return logits


def kmcl_loss(output: HeadOutput, targets: Tensor, options: KmclOptions) -> LossTerms:
    """Eq. 8, or Eq. 6 alone without kernels; of several branches the mean of their classification terms."""
    if output.mixture is None:
        return _classification_loss(output, targets, options)
    terms = kmcl_objective(output.features, output.mixture, targets, options.objective, output.branches)
    named = {
        "reconstruction": terms.reconstruction,
        "classification": terms.classification,
        "contrastive": terms.contrastive,
    }
    return LossTerms(terms.total, named)


def _classification_loss(output: HeadOutput, targets: Tensor, options: KmclOptions) -> LossTerms:
    branches = output.branches or (output.logits,)
    checked = check_inputs(targets, {f"branches[{index}]": logits for index, logits in enumerate(branches)})
    loss = classification_loss(branches, checked, options.objective)
    return LossTerms(options.classification_weight * loss, {"classification": loss})
