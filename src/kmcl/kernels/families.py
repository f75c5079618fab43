"""The four kernels of the paper's ablation. A kernel family is one entry of `KERNELS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from kmcl.errors import InputError
from kmcl.kernels.exponents import log_kernel_diagonal, log_kernel_scalar
from kmcl.kernels.pairs import diagonal_pairs, gathered_pairs, scalar_pairs
from kmcl.kernels.parameters import KernelParameters, LogKernel, LogSimilarity, PairwiseSimilarity
from kmcl.kernels.similarity import (
    log_bhattacharyya_diagonal,
    log_bhattacharyya_isotropic,
    log_gaussian,
    log_mahalanobis_diagonal,
)


@dataclass(frozen=True)
class KernelFamily:
    """The parameters of an image's kernels, and their formulas.

    mean_axes:      of one image's means: "L", one per label (times the vector 1), or "LD", one per dimension
    variance_axes:  of its variances: "L" or "LD", or with "1" for L where all labels share them
    log_kernel:     Eq. 4's g
    log_similarity: of two kernels, for example Eq. 1
    pairwise:       log_similarity for the pairs of Eq. 7, with less memory or fewer passes; by default
                    log_similarity itself on gathered parameters
    """

    mean_axes: Literal["L", "LD"]
    variance_axes: Literal["L", "1", "LD", "1D"]
    log_kernel: LogKernel
    log_similarity: LogSimilarity
    pairwise: PairwiseSimilarity | None = None

    def __post_init__(self) -> None:
        if self.mean_axes not in ("L", "LD"):
            raise ValueError(f"mean_axes must be L or LD; got {self.mean_axes!r}")
        if self.variance_axes not in ("L", "1", "LD", "1D"):
            raise ValueError(f"variance_axes must be L, 1, LD or 1D; got {self.variance_axes!r}")
        self._check_formulas()

    def _check_formulas(self) -> None:
        """Formulas and axes must fit: tried on two images of three labels in four dimensions."""
        kernels = KernelParameters(
            torch.zeros(2, *self.mean_shape(3, 4)), torch.ones(2, *self.variance_shape(3, 4)), 4, 1.0
        )
        means, variances = kernels.means, kernels.variances
        rows, labels = torch.tensor([0, 1, 1, 0]), torch.tensor([0, 0, 1, 2])
        formulas: dict[str, tuple[Callable[[], Tensor], tuple[int, int]]] = {
            "log_kernel": (lambda: self.log_kernel(torch.zeros(2, 4), kernels), (2, 3)),
            "log_similarity": (lambda: self.log_similarity(means, variances, means, variances, 4), (2, 3)),
            "pairwise": (lambda: self.pairwise_similarity(kernels, kernels, rows, labels), (4, 2)),
        }
        for name, (formula, shape) in formulas.items():
            axes = f"means of axes {self.mean_axes} and variances of axes {self.variance_axes}"
            try:
                found = tuple(formula().shape)
            except (RuntimeError, IndexError) as error:  # raised by a wrong broadcast or axis
                raise ValueError(f"{name} does not take {axes}: {error}") from error
            if found != shape:
                raise ValueError(f"{name} of {axes} must have shape {shape}; got {found}")

    def mean_shape(self, num_labels: int, feature_dim: int) -> tuple[int, ...]:
        """Shape of one image's means."""
        return _shape(self.mean_axes, num_labels, feature_dim)

    def variance_shape(self, num_labels: int, feature_dim: int) -> tuple[int, ...]:
        """Shape of one image's variances; the label axis is 1 where labels share them."""
        return _shape(self.variance_axes, num_labels, feature_dim)

    @property
    def means_per_dimension(self) -> bool:
        return "D" in self.mean_axes

    @property
    def variances_per_dimension(self) -> bool:
        return "D" in self.variance_axes

    @property
    def pairwise_similarity(self) -> PairwiseSimilarity:
        return partial(gathered_pairs, self.log_similarity) if self.pairwise is None else self.pairwise


def _shape(axes: str, num_labels: int, feature_dim: int) -> tuple[int, ...]:
    sizes = {"L": num_labels, "1": 1, "D": feature_dim}
    return tuple(sizes[axis] for axis in axes)


def _anisotropic_similarity(
    means_p: Tensor, variances_p: Tensor, means_q: Tensor, variances_q: Tensor, feature_dim: int
) -> Tensor:
    return log_bhattacharyya_diagonal(means_p, variances_p, means_q, variances_q)


def _mahalanobis_similarity(
    means_p: Tensor, variances_p: Tensor, means_q: Tensor, variances_q: Tensor, feature_dim: int
) -> Tensor:
    return log_mahalanobis_diagonal(means_p, variances_p, means_q, variances_q)


KERNELS: dict[str, KernelFamily] = {
    "isotropic": KernelFamily(
        mean_axes="L",
        variance_axes="L",
        log_kernel=log_kernel_scalar,
        log_similarity=log_bhattacharyya_isotropic,
        pairwise=partial(scalar_pairs, has_scale_factor=True),
    ),
    "anisotropic": KernelFamily(
        mean_axes="LD",
        variance_axes="LD",
        log_kernel=log_kernel_diagonal,
        log_similarity=_anisotropic_similarity,
        pairwise=partial(diagonal_pairs, has_scale_factor=True),
    ),
    "mahalanobis": KernelFamily(
        mean_axes="LD",
        variance_axes="1D",
        log_kernel=log_kernel_diagonal,
        log_similarity=_mahalanobis_similarity,
        pairwise=partial(diagonal_pairs, has_scale_factor=False),
    ),
    "gaussian": KernelFamily(
        mean_axes="L",
        variance_axes="1",
        log_kernel=log_kernel_scalar,
        log_similarity=log_gaussian,
        pairwise=partial(scalar_pairs, has_scale_factor=False),
    ),
}


def kernel_family(name: str) -> KernelFamily:
    """The family called `name`."""
    try:
        return KERNELS[name]
    except KeyError:
        raise InputError(f"kernel must be one of {', '.join(KERNELS)}; got {name!r}") from None
