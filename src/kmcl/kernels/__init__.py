"""Exponential kernels, their mixture and their similarities: pure functions of tensors."""

from kmcl.kernels.families import KERNELS, KernelFamily, kernel_family
from kmcl.kernels.mixture import KernelMixture, log_components, log_kernel, log_mixture
from kmcl.kernels.pairs import pairwise_log_similarity
from kmcl.kernels.similarity import (
    log_bhattacharyya,
    log_bhattacharyya_diagonal,
    log_bhattacharyya_isotropic,
    log_gaussian,
    log_mahalanobis,
    log_mahalanobis_diagonal,
)

__all__ = [
    "KERNELS",
    "KernelFamily",
    "KernelMixture",
    "kernel_family",
    "log_bhattacharyya",
    "log_bhattacharyya_diagonal",
    "log_bhattacharyya_isotropic",
    "log_components",
    "log_gaussian",
    "log_kernel",
    "log_mahalanobis",
    "log_mahalanobis_diagonal",
    "log_mixture",
    "pairwise_log_similarity",
]
