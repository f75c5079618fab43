"""KMCL: a kernel mixture over the pooled features, trained with the paper's three terms.

The paper's head is the mixture alone. Three parts can stand beside it (docs/method.md): queries that let each
label look at the feature map, a memory of the training images' kernels that votes on a prediction, and a
recollection of them as the encoder saw them before it was trained.
"""

from __future__ import annotations

from torch import Tensor, nn

from kmcl.losses import kmcl_objective
from kmcl.methods.interface import LossTerms, MethodOptions
from kmcl.methods.query_branch import QueryBranch
from kmcl.models.classifier import HeadOutput
from kmcl.models.encoder import Encoder, EncoderFeatures
from kmcl.models.head import KernelMixtureHead
from kmcl.models.kernel_memory import KernelMemory
from kmcl.models.recollection import Recollection


class KernelMixtureMethodHead(nn.Module):
    """The paper's KMM on the pooled features, and what stands beside it.

    logit_k = mean of the mixture's (logit of π_k) and the query's, where there are queries,
              plus the evidence of the memory and of the recollection, where there are these
    """

    def __init__(self, encoder: Encoder, num_labels: int, options: MethodOptions) -> None:
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
        self.memory: KernelMemory | None = None
        if options.memory_size:
            self.memory = KernelMemory(options.memory_size, encoder.feature_dim, num_labels)
        self.recollection: Recollection | None = None
        if options.recollection_size:
            encoder.hand_on(options.frozen_stages)
            self.recollection = Recollection(encoder, num_labels, options.recollection_size)

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        mixture = self.kernel_mixture(encoded.pooled)
        logits: Tensor = mixture.logits
        branches: tuple[Tensor, ...] = ()
        if self.query_branch is not None:
            branches = (mixture.logits, self.query_branch(encoded.spatial))
            logits = (branches[0] + branches[1]) / 2
        if self.memory is not None:
            logits = logits + self.memory(encoded.pooled)
        statistics: Tensor | None = None
        if self.recollection is not None and encoded.first is not None:
            statistics = self.recollection.statistics(encoded.first)
            logits = logits + self.recollection(statistics)
        return HeadOutput(logits, encoded.pooled, mixture, branches, statistics)


def kmcl_loss(output: HeadOutput, targets: Tensor, options: MethodOptions) -> LossTerms:
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
