"""A kernel family is one entry of a table: every entry, and one of a test's own, works in every function."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from kmcl.kernels import (
    KERNELS,
    KernelFamily,
    KernelParameters,
    log_components,
    log_kernel,
    pairwise_log_similarity,
)
from kmcl.kernels.exponents import log_kernel_diagonal, log_kernel_scalar
from kmcl.kernels.similarity import log_gaussian
from kmcl.losses import contrastive_loss, kmcl_objective
from kmcl.methods.kmcl import KernelMixtureHead
from random_inputs import make_mixture, make_targets


def log_laplace(features: Tensor, kernels: KernelParameters) -> Tensor:
    """-Σ_d |f_d - μ_d| / σ²."""
    distance = (features.unsqueeze(1) - kernels.means).abs().sum(dim=-1)
    return -kernels.exponent_scale * distance / kernels.variances


def laplace_similarity(
    means_p: Tensor, variances_p: Tensor, means_q: Tensor, variances_q: Tensor, feature_dim: int
) -> Tensor:
    """-Σ_d |μp_d - μq_d| / (σp² + σq²)."""
    return -(means_p - means_q).abs().sum(dim=-1) / (variances_p + variances_q)


@pytest.fixture(params=[*KERNELS, "laplace"])
def kernel(request, monkeypatch) -> Iterator[str]:
    monkeypatch.setitem(KERNELS, "laplace", KernelFamily("LD", "1", log_laplace, laplace_similarity))
    return request.param


def test_every_family_in_every_function(kernel):
    torch.manual_seed(0)
    head = KernelMixtureHead(6, 5, kernel, init="small").double()
    features = torch.randn(8, 6, dtype=torch.float64)
    targets = make_targets(8, 5)
    mixture = head(features)
    assert log_kernel(features, mixture).shape == log_components(features, mixture).shape == (8, 5)
    assert mixture.label_variances.shape == (8, 5)
    optimiser = torch.optim.SGD(head.parameters(), lr=0.1)
    losses = []
    for _ in range(5):
        terms = kmcl_objective(features, head(features), targets)
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()
        losses.append(terms.total.item())
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in head.parameters())
    assert losses[-1] < losses[0]


def test_pairs_are_the_similarity_of_each_pair(kernel):
    anchors, candidates = make_mixture(kernel, 3, 3, 4), make_mixture(kernel, 5, 3, 4, seed=1)
    rows, labels = torch.tensor([0, 2, 1]), torch.tensor([0, 1, 1])
    pairs = pairwise_log_similarity(anchors, candidates, rows, labels)
    family = KERNELS[kernel]
    shape = (1, 3, 4) if family.means_per_dimension and family.variances_per_dimension else (1, 3)
    for pair, (row, label) in enumerate(zip(rows, labels, strict=True)):
        for other in range(5):
            one = family.log_similarity(
                anchors.means[row : row + 1],
                anchors.variances[row : row + 1].expand(shape),
                candidates.means[other : other + 1],
                candidates.variances[other : other + 1].expand(shape),
                4,
            )
            torch.testing.assert_close(pairs[pair, other], one[0, label])


def test_the_default_for_pairs_is_that_of_the_written_out_one():
    mixture, targets = make_mixture("gaussian", 8, 5, 6), make_targets(8, 5)
    plain = replace(KERNELS["gaussian"], pairwise=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNELS, "plain", plain)
        other = contrastive_loss(replace(mixture, kernel="plain"), targets)
    torch.testing.assert_close(other, contrastive_loss(mixture, targets))


def test_hand_value_of_the_laplace_kernel(monkeypatch):
    monkeypatch.setitem(KERNELS, "laplace", KernelFamily("LD", "1", log_laplace, laplace_similarity))
    mixture = make_mixture("laplace", 1, 1, 2)
    mixture = replace(mixture, means=torch.tensor([[[1.0, 2.0]]]), variances=torch.tensor([[2.0]]))
    assert log_kernel(torch.zeros(1, 2), replace(mixture, logits=torch.zeros(1, 1))).item() == -1.5


@pytest.mark.parametrize(
    ("axes", "formula", "message"),
    [
        (("L", "LD"), log_kernel_scalar, "does not take means of axes L and variances of axes LD"),
        (("LD", "L"), log_kernel_diagonal, "does not take means of axes LD and variances of axes L"),
        (("LD", "LD"), log_kernel_scalar, "does not take means of axes LD"),
        (("D", "L"), log_kernel_scalar, "mean_axes must be L or LD; got 'D'"),
        (("L", "DL"), log_kernel_scalar, "variance_axes must be L, 1, LD or 1D; got 'DL'"),
        (
            ("L", "1"),
            lambda features, kernels: features,
            r"log_kernel .* must have shape \(2, 3\); got \(2, 4\)",
        ),
    ],
)
def test_a_family_whose_formulas_do_not_fit_its_axes_cannot_exist(axes, formula, message, no_shape_checks):
    with pytest.raises(ValueError, match=message):
        KernelFamily(*axes, formula, log_gaussian)


def test_the_formula_that_does_not_fit_is_named(no_shape_checks):
    def wrong_shape(*arguments):
        return torch.zeros(2, 2)

    family = KERNELS["isotropic"]
    with pytest.raises(ValueError, match=r"^log_similarity of .* must have shape \(2, 3\); got \(2, 2\)"):
        replace(family, log_similarity=wrong_shape)
    with pytest.raises(ValueError, match=r"^pairwise of .* must have shape \(4, 2\); got \(2, 2\)"):
        replace(family, pairwise=wrong_shape)
    with pytest.raises(
        ValueError, match=r"^log_kernel does not take means of axes L and variances of axes 1D: "
    ):
        KernelFamily("L", "1D", log_kernel_scalar, log_gaussian)

    def out_of_range(features, kernels):
        return kernels.means.sum(dim=5)

    with pytest.raises(ValueError, match=r"^log_kernel does not take means"):
        KernelFamily("L", "L", out_of_range, log_gaussian)


def test_a_formula_is_tried_on_variances_above_0_and_in_its_dimension():
    """A formula may fail on variances of 0, and may take its shapes from the dimension it is given."""

    def log_kernel_of_sums(features: Tensor, kernels: KernelParameters) -> Tensor:
        factors = torch.linalg.cholesky(torch.diag_embed(kernels.variances))
        variances = factors.diagonal(dim1=-2, dim2=-1).square()
        gaps = features.unsqueeze(1) - kernels.means
        return -gaps.square() @ torch.ones(kernels.feature_dim) / variances

    def similarity_of_sums(
        means_p: Tensor, variances_p: Tensor, means_q: Tensor, variances_q: Tensor, feature_dim: int
    ) -> Tensor:
        return -(means_p - means_q).square() @ torch.ones(feature_dim) / (variances_p + variances_q)

    family = KernelFamily("LD", "L", log_kernel_of_sums, similarity_of_sums)
    kernels = KernelParameters(torch.zeros(1, 1, 2), torch.tensor([[2.0]]), 2, 1.0)
    assert family.log_kernel(torch.tensor([[1.0, 2.0]]), kernels).item() == pytest.approx(-2.5)


def test_axes_say_what_there_is_per_dimension():
    found = {
        name: (family.means_per_dimension, family.variances_per_dimension) for name, family in KERNELS.items()
    }
    assert found == {
        "isotropic": (False, False),
        "anisotropic": (True, True),
        "mahalanobis": (True, True),
        "gaussian": (False, False),
    }


def test_shapes_of_the_paper_s_kernels():
    numbers = {
        name: (math.prod(family.mean_shape(80, 2048)), math.prod(family.variance_shape(80, 2048)))
        for name, family in KERNELS.items()
    }
    assert numbers == {
        "isotropic": (80, 80),
        "anisotropic": (80 * 2048, 80 * 2048),
        "mahalanobis": (80 * 2048, 2048),
        "gaussian": (80, 1),
    }
