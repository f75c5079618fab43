"""The exponent of a kernel at an image's own features, log g(f) = -½ (f - μ)ᵀ Σ⁻¹ (f - μ) (Eq. 4)."""

from __future__ import annotations

from torch import Tensor

from kmcl.kernels.parameters import KernelParameters
from kmcl.shapes import Float


def log_kernel_scalar(features: Float[Tensor, "B D"], kernels: KernelParameters) -> Float[Tensor, "B L"]:
    """-‖f - μ·1‖² / (2 σ²), for one mean and one variance per label."""
    # ‖f - μ·1‖² = D (mean(f) - μ)² + ‖f - mean(f)·1‖²: no B x L x D tensor, and no cancellation.
    centre = features.mean(dim=1, keepdim=True)
    spread = (features - centre).square().sum(dim=1, keepdim=True)
    squared_distance = kernels.feature_dim * (centre - kernels.means).square() + spread
    return -0.5 * kernels.exponent_scale * squared_distance / kernels.variances


def log_kernel_diagonal(features: Float[Tensor, "B D"], kernels: KernelParameters) -> Float[Tensor, "B L"]:
    """-½ Σ_d (f_d - μ_d)² / σ_d², for a mean and a variance per label and dimension."""
    scaled = (features.unsqueeze(1) - kernels.means).square() / kernels.variances
    return -0.5 * kernels.exponent_scale * scaled.sum(dim=-1)
