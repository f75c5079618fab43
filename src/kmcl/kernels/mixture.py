"""The kernel mixture of an image (Eq. 4): one exponential kernel per label, weighted by its probability."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional

from kmcl.kernels.families import KernelFamily, kernel_family
from kmcl.kernels.parameters import KernelParameters
from kmcl.kernels.precision import at_least_float32
from kmcl.shapes import Bool, Float, Int


@dataclass(frozen=True)
class KernelMixture:
    """Parameters θ = (π, μ, σ²) of a batch of mixtures.

    logits:         B x L, π = sigmoid(logits)
    means:          B x L, or B x L x D where the kernel has a mean per dimension
    variances:      B x L, B x L x D, or with a label axis of 1 where all labels share them; above 0,
                    which the losses check
    feature_dim:    D, the dimension of the feature space of the kernels
    kernel:         a name in `kmcl.kernels.KERNELS`
    exponent_scale: multiplies log-kernels and log-similarities. 1 is the paper; 1/D takes the mean over
                    dimensions where the paper has the sum, which keeps both of order 1 at any D
    """

    logits: Float[Tensor, "B L"]
    means: Float[Tensor, "B L *D"]
    variances: Float[Tensor, "B L_or_1 *D_or_none"]
    feature_dim: int
    kernel: str = "isotropic"
    exponent_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.logits.ndim != 2:
            raise ValueError(f"logits must be B x L; got shape {tuple(self.logits.shape)}")
        batch_size, num_labels = self.logits.shape
        for name, tensor, shape in (
            ("means", self.means, self.family.mean_shape(num_labels, self.feature_dim)),
            ("variances", self.variances, self.family.variance_shape(num_labels, self.feature_dim)),
        ):
            if tuple(tensor.shape) != (batch_size, *shape):
                raise ValueError(
                    f"{name} of the {self.kernel} kernel must have shape {(batch_size, *shape)}; "
                    f"got {tuple(tensor.shape)}"
                )
        for name in ("logits", "means", "variances"):
            if not getattr(self, name).is_floating_point():
                raise ValueError(f"{name} must be floating point; got {getattr(self, name).dtype}")

    @property
    def family(self) -> KernelFamily:
        return kernel_family(self.kernel)

    @property
    def parameters(self) -> KernelParameters:
        """The arguments of the family's formulas: μ and σ², D and the scale of the exponents."""
        return KernelParameters(self.means, self.variances, self.feature_dim, self.exponent_scale)

    @property
    def probabilities(self) -> Float[Tensor, "B L"]:
        """π: how likely each label is, the prediction."""
        return self.logits.sigmoid()

    @property
    def label_variances(self) -> Float[Tensor, "B L"]:
        """One σ² per label: the mean over dimensions where it has several, repeated where labels share it."""
        variances = self.variances.mean(dim=-1) if self.family.variances_per_dimension else self.variances
        return variances.expand_as(self.logits)

    def at_least_float32(self) -> KernelMixture:
        return replace(
            self,
            logits=at_least_float32(self.logits),
            means=at_least_float32(self.means),
            variances=at_least_float32(self.variances),
        )


def log_kernel(features: Float[Tensor, "B D"], mixture: KernelMixture) -> Float[Tensor, "B L"]:
    """Log of each label's kernel at the image's own feature vector (Eq. 4).

        log g_k(f) = -‖f - μ_k‖² / (2 σ_k²)

    times `exponent_scale`, with μ_k = μ_k·1 for kernels with one mean per label. Values of -250 to -2,600 are
    ordinary at D in the thousands, so that g itself is 0 in float32; only its logarithm is ever formed.
    """
    if features.shape != (mixture.logits.shape[0], mixture.feature_dim):
        raise ValueError(
            f"features must be B x D = {(mixture.logits.shape[0], mixture.feature_dim)} as the mixture's; "
            f"got {tuple(features.shape)}"
        )
    features = at_least_float32(features)
    mixture = mixture.at_least_float32()
    return mixture.family.log_kernel(features, mixture.parameters)


def pairwise_log_similarity(
    anchors: KernelMixture,
    candidates: KernelMixture,
    anchor_rows: Int[Tensor, " P"],
    labels: Int[Tensor, " P"],
) -> Float[Tensor, "P C"]:
    """Log-similarity of label `labels[p]`'s kernel in anchor `anchor_rows[p]` with that label's everywhere.

    Bhattacharyya (Corollary 2) for isotropic and anisotropic kernels, Eq. 2a and 2b for the other two, times
    the mixtures' `exponent_scale`. `labels` must be sorted.
    """
    return anchors.family.pairwise_similarity(anchors.parameters, candidates.parameters, anchor_rows, labels)


def log_components(features: Float[Tensor, "B D"], mixture: KernelMixture) -> Float[Tensor, "B L"]:
    """log(π_k g_k(f)), the summands of Eq. 4."""
    log_probabilities = functional.logsigmoid(at_least_float32(mixture.logits))
    return log_probabilities + log_kernel(features, mixture)


def log_mixture(components: Float[Tensor, "B L"], members: Bool[Tensor, "B L"]) -> Float[Tensor, " B"]:
    """log G_S(f) = log Σ_{k in S} π_k g_k(f) (Eq. 4), from `log_components` and the set S of each image.

    Every row needs a member: the logarithm of an empty sum has no gradient.
    """
    return torch.logsumexp(components.masked_fill(~members, -torch.inf), dim=1)
