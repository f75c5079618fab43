"""The four kernels of the paper's ablation, told apart by what the head predicts for an image."""

from __future__ import annotations

from dataclasses import dataclass

from kmcl.errors import InputError


@dataclass(frozen=True)
class KernelFamily:
    """Which means and variances an image has, and whether their similarity keeps Eq. 1's scale factor.

    means_per_dimension:     one mean per label and feature dimension, else one per label (times the vector 1)
    variances_per_dimension: one variance per feature dimension, else one for all dimensions
    variances_per_label:     each label has its own variances, else all labels of an image share them
    has_scale_factor:        Bhattacharyya coefficient, else its exponential factor alone (Corollary 1)
    """

    means_per_dimension: bool
    variances_per_dimension: bool
    variances_per_label: bool
    has_scale_factor: bool

    def mean_shape(self, num_labels: int, feature_dim: int) -> tuple[int, ...]:
        """Shape of one image's means."""
        return (num_labels, feature_dim) if self.means_per_dimension else (num_labels,)

    def variance_shape(self, num_labels: int, feature_dim: int) -> tuple[int, ...]:
        """Shape of one image's variances; the label axis is 1 where labels share them."""
        labels = num_labels if self.variances_per_label else 1
        return (labels, feature_dim) if self.variances_per_dimension else (labels,)


KERNELS = {
    "isotropic": KernelFamily(False, False, True, has_scale_factor=True),
    "anisotropic": KernelFamily(True, True, True, has_scale_factor=True),
    "mahalanobis": KernelFamily(True, True, False, has_scale_factor=False),
    "gaussian": KernelFamily(False, False, False, has_scale_factor=False),
}


def kernel_family(name: str) -> KernelFamily:
    """The family called `name`."""
    try:
        return KERNELS[name]
    except KeyError:
        raise InputError(f"kernel must be one of {', '.join(KERNELS)}; got {name!r}") from None
