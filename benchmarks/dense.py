"""Eq. 7 in its dense textbook form: every similarity of a batch, B x B x L (x D), then masks.

The baseline of `benchmarks/loss.py`, and a second reference for the tests, forward and backward.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kmcl.kernels import KernelMixture


def dense_contrastive_loss(mixture: KernelMixture, targets: Tensor, temperature: float = 0.2) -> Tensor:
    similarity_BBL = _similarities(mixture).exp()
    positive = targets.to(similarity_BBL.dtype)
    batch_size = len(targets)
    not_self_BB = ~torch.eye(batch_size, dtype=torch.bool)
    shared_BB = positive @ positive.T
    sizes = positive.sum(dim=1)
    jaccard_BB = shared_BB / (sizes[:, None] + sizes[None, :] - shared_BB).clamp(min=1)
    positives_BB = (shared_BB > 0) & not_self_BB
    scores_BBL = similarity_BBL / temperature
    log_denominator_BL = scores_BBL.masked_fill(~not_self_BB[:, :, None], -torch.inf).logsumexp(dim=1)
    log_share_BBL = scores_BBL - log_denominator_BL[:, None, :]
    shared_labels_BBL = positive[:, None, :] * positive[None, :, :]
    weight_BB = positives_BB * jaccard_BB / positives_BB.sum(dim=1, keepdim=True).clamp(min=1)
    return -(weight_BB[:, :, None] * shared_labels_BBL * log_share_BBL).sum() / batch_size


def _similarities(mixture: KernelMixture) -> Tensor:
    means, variances = mixture.means, mixture.variances.expand_as(mixture.means)
    gap = (means[:, None] - means[None, :]).square() / (variances[:, None] + variances[None, :])
    log_similarity = -0.25 * gap
    if mixture.kernel in ("isotropic", "anisotropic"):
        deviations = variances.sqrt()
        ratio = (variances[:, None] + variances[None, :]) / (2 * deviations[:, None] * deviations[None, :])
        log_similarity = log_similarity - 0.5 * ratio.log()
    if mixture.family.means_per_dimension:
        return log_similarity.sum(dim=-1)
    return mixture.feature_dim * log_similarity
