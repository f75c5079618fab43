"""Similarities of two exponential kernels: Eq. 1 to 3 of the paper, as logarithms.

A kernel is K_Σ(x, μ) = exp(-½ (x - μ)ᵀ Σ⁻¹ (x - μ)). All functions return log-similarities, at most 0, and 0
exactly when the kernels are equal; "higher is closer". Leading dimensions broadcast.

Logarithms because with D in the thousands the coefficients themselves underflow: a squared gap of the means
of 1 % of the summed variances already gives exp(-0.0025 D), which is 0.006 at D = 2048.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from kmcl.shapes import Float


def log_bhattacharyya(
    means_p: Float[Tensor, "*#batch D"],
    covariances_p: Float[Tensor, "*#batch D D"],
    means_q: Float[Tensor, "*#batch D"],
    covariances_q: Float[Tensor, "*#batch D D"],
) -> Float[Tensor, "*batch"]:
    """Log Bhattacharyya coefficient of two normalised kernels with full covariances (Eq. 1, Remark 1).

        log ρ = ¼ log|Σp| + ¼ log|Σq| - ½ log|Σ| - ⅛ (μp - μq)ᵀ Σ⁻¹ (μp - μq),   Σ = (Σp + Σq) / 2

    Covariances must be symmetric positive definite. Determinants and the quadratic form come from Cholesky
    factors: no inverse is formed, and |Σ| neither over- nor underflows. The paper's proof ends in powers ½
    where the remark has ¼; ρ(p, p) = 1 decides for ¼.
    """
    pooled_factor = _cholesky((covariances_p + covariances_q) / 2, "(covariances_p + covariances_q) / 2")
    log_scale = (
        0.25 * _log_determinant(_cholesky(covariances_p, "covariances_p"))
        + 0.25 * _log_determinant(_cholesky(covariances_q, "covariances_q"))
        - 0.5 * _log_determinant(pooled_factor)
    )
    return log_scale + _log_exponential_factor(means_p - means_q, pooled_factor)


def log_bhattacharyya_diagonal(
    means_p: Float[Tensor, "*#batch D"],
    variances_p: Float[Tensor, "*#batch D"],
    means_q: Float[Tensor, "*#batch D"],
    variances_q: Float[Tensor, "*#batch D"],
) -> Float[Tensor, "*batch"]:
    """Log Bhattacharyya coefficient of anisotropic kernels, covariances diag(σ²) (Corollary 2 i).

    log ρ = -½ Σ_d log((σp² + σq²) / (2 σp σq)) - ¼ Σ_d (μp - μq)² / (σp² + σq²)
    """
    return -0.25 * _gap_per_dimension(means_p, variances_p, means_q, variances_q).sum(dim=-1)


def log_bhattacharyya_isotropic(
    means_p: Float[Tensor, "*#batch"],
    variances_p: Float[Tensor, "*#batch"],
    means_q: Float[Tensor, "*#batch"],
    variances_q: Float[Tensor, "*#batch"],
    feature_dim: float,
) -> Float[Tensor, "*batch"]:
    """Log Bhattacharyya coefficient of isotropic kernels with mean μ·1 and covariance σ²·I (Corollary 2 ii).

    log ρ = -D/2 log((σp² + σq²) / (2 σp σq)) - D/4 (μp - μq)² / (σp² + σq²),   D = feature_dim
    """
    return (-0.25 * feature_dim) * _gap_per_dimension(means_p, variances_p, means_q, variances_q)


def log_mahalanobis(
    means_p: Float[Tensor, "*#batch D"],
    covariances_p: Float[Tensor, "*#batch D D"],
    means_q: Float[Tensor, "*#batch D"],
    covariances_q: Float[Tensor, "*#batch D D"],
) -> Float[Tensor, "*batch"]:
    """Log Mahalanobis kernel similarity, the exponential factor of Eq. 1 alone (Corollary 1 i, Eq. 2a).

        log Sim_M = -⅛ (μp - μq)ᵀ Σ⁻¹ (μp - μq),   Σ = (Σp + Σq) / 2

    The paper has one common Σ; if the two kernels' covariances differ, their mean is used.
    """
    pooled_factor = _cholesky((covariances_p + covariances_q) / 2, "(covariances_p + covariances_q) / 2")
    return _log_exponential_factor(means_p - means_q, pooled_factor)


def log_mahalanobis_diagonal(
    means_p: Float[Tensor, "*#batch D"],
    variances_p: Float[Tensor, "*#batch D"],
    means_q: Float[Tensor, "*#batch D"],
    variances_q: Float[Tensor, "*#batch D"],
) -> Float[Tensor, "*batch"]:
    """Log Mahalanobis kernel similarity for covariances diag(σ²): -¼ Σ_d (μp - μq)² / (σp² + σq²)."""
    return -0.25 * ((means_p - means_q).square() / (variances_p + variances_q)).sum(dim=-1)


def log_gaussian(
    means_p: Float[Tensor, "*#batch"],
    variances_p: Float[Tensor, "*#batch"],
    means_q: Float[Tensor, "*#batch"],
    variances_q: Float[Tensor, "*#batch"],
    feature_dim: float,
) -> Float[Tensor, "*batch"]:
    """Log Gaussian kernel similarity of kernels with mean μ·1 and covariance σ²·I (Corollary 1 ii, Eq. 2b).

    log Sim_G = -‖μp·1 - μq·1‖² / (8 σ²) = -D/4 (μp - μq)² / (σp² + σq²),   σ² = (σp² + σq²) / 2
    """
    return (-0.25 * feature_dim) * ((means_p - means_q).square() / (variances_p + variances_q))


def _gap_per_dimension(means_p: Tensor, variances_p: Tensor, means_q: Tensor, variances_q: Tensor) -> Tensor:
    """-4 times the log coefficient of one dimension."""
    # ((a + b) / (2 √(ab)))² = 1 + (a - b)² / (4ab): log1p keeps full precision where the variances are close,
    # which D multiplies; two quotients instead of one keep (a - b)² and ab from overflowing.
    gap = variances_p - variances_q
    log_scale = torch.log1p((gap / (4 * variances_p)) * (gap / variances_q))
    return log_scale + (means_p - means_q).square() / (variances_p + variances_q)


def _cholesky(covariances: Tensor, name: str) -> Tensor:
    factor, failed_at = torch.linalg.cholesky_ex(covariances)
    if bool(failed_at.any()):
        raise ValueError(
            f"{name} must be positive definite: a leading minor of order {int(failed_at.max())} is not"
        )
    return cast(Tensor, factor)


def _log_determinant(cholesky_factor: Tensor) -> Tensor:
    return 2 * cholesky_factor.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)


def _log_exponential_factor(mean_gap: Tensor, cholesky_factor: Tensor) -> Tensor:
    whitened = torch.linalg.solve_triangular(cholesky_factor, mean_gap.unsqueeze(-1), upper=False)
    return cast(Tensor, -0.125 * whitened.squeeze(-1).square().sum(dim=-1))
