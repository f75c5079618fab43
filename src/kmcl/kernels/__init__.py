"""Exponential kernels, their mixture and their similarities: pure functions of tensors."""

from kmcl.kernels.families import KERNELS, KernelFamily, kernel_family
from kmcl.kernels.mixture import (
    KernelMixture,
    log_components,
    log_kernel,
    log_mixture,
    pairwise_log_similarity,
)
from kmcl.kernels.parameters import KernelParameters
from kmcl.kernels.similarity import (
    log_bhattacharyya,
    log_bhattacharyya_diagonal,
    log_bhattacharyya_isotropic,
    log_gaussian,
    log_mahalanobis,
    log_mahalanobis_diagonal,
)
from kmcl.kernels.targets import Targets, read_targets

__all__ = [
    "KERNELS",
    "KernelFamily",
    "KernelMixture",
    "KernelParameters",
    "Targets",
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
    "read_targets",
]
