"""KMCL: a kernel mixture over the pooled features, trained with the paper's three terms."""

from __future__ import annotations

from torch import Tensor, nn

from kmcl.losses import kmcl_objective
from kmcl.methods.interface import LossTerms, MethodOptions
from kmcl.models.classifier import HeadOutput
from kmcl.models.encoder import Encoder, EncoderFeatures
from kmcl.models.head import KernelMixtureHead


class KernelMixtureMethodHead(nn.Module):
    """The paper's KMM on the pooled features."""

    def __init__(self, encoder: Encoder, num_labels: int, options: MethodOptions) -> None:
        super().__init__()
        self.kernel_mixture = KernelMixtureHead(
            encoder.feature_dim,
            num_labels,
            options.kernel,
            init=options.head_init,
            normalise_dimension=options.normalise_dimension,
        )

    def forward(self, encoded: EncoderFeatures) -> HeadOutput:
        mixture = self.kernel_mixture(encoded.pooled)
        return HeadOutput(mixture.logits, encoded.pooled, mixture)


def kmcl_loss(output: HeadOutput, targets: Tensor, options: MethodOptions) -> LossTerms:
    """Eq. 8."""
    if output.mixture is None:
        raise ValueError("the KMCL loss needs a head with a kernel mixture")
    terms = kmcl_objective(output.features, output.mixture, targets, options.objective)
    named = {
        "reconstruction": terms.reconstruction,
        "classification": terms.classification,
        "contrastive": terms.contrastive,
    }
    return LossTerms(terms.total, named)
