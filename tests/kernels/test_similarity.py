"""Eq. 1 to 3 against numerical integration of the definition, their reductions, and hand values."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import integrate

from kmcl.kernels import (
    log_bhattacharyya,
    log_bhattacharyya_diagonal,
    log_bhattacharyya_isotropic,
    log_gaussian,
    log_mahalanobis,
    log_mahalanobis_diagonal,
)

MEANS = st.floats(-5, 5)
VARIANCES = st.floats(0.05, 20)


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def random_covariance(dim: int, seed: int) -> torch.Tensor:
    factor = torch.randn(dim, dim, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return factor @ factor.T + 0.3 * torch.eye(dim, dtype=torch.float64)


def kernel_value(x, mean, covariance) -> float:
    gap = np.atleast_1d(x) - np.atleast_1d(mean)
    return math.exp(-0.5 * gap @ np.linalg.solve(np.atleast_2d(covariance), gap))


@pytest.mark.parametrize(
    ("mean_p", "variance_p", "mean_q", "variance_q"),
    [(0, 1, 0, 1), (0, 1, 1.5, 1), (-1, 0.3, 2, 4), (0, 0.1, 0, 9)],
)
def test_one_dimension_is_the_integral_of_the_definition(mean_p, variance_p, mean_q, variance_q):
    def p(x):
        return kernel_value(x, mean_p, variance_p)

    def q(x):
        return kernel_value(x, mean_q, variance_q)

    mass_p, mass_q = (integrate.quad(f, -60, 60, points=[mean_p, mean_q], limit=200)[0] for f in (p, q))
    expected = integrate.quad(
        lambda x: math.sqrt(p(x) / mass_p * q(x) / mass_q), -60, 60, points=[mean_p, mean_q], limit=200
    )[0]
    arguments = [tensor(float(value)) for value in (mean_p, variance_p, mean_q, variance_q)]
    full = log_bhattacharyya(
        arguments[0], arguments[1].unsqueeze(0), arguments[2], arguments[3].unsqueeze(0)
    ).exp()
    assert full.item() == pytest.approx(expected, rel=1e-7)
    assert log_bhattacharyya_diagonal(*arguments).exp().item() == pytest.approx(expected, rel=1e-7)
    assert log_bhattacharyya_isotropic(*arguments, 1).exp().item() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("seed", [0, 1])
def test_two_dimensions_are_the_integral_of_the_definition(seed):
    covariance_p, covariance_q = random_covariance(2, seed), random_covariance(2, seed + 10)
    mean_p, mean_q = tensor(0.5, -0.2), tensor(-0.4, 0.7)
    grid = np.linspace(-12, 12, 601)
    points = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)

    def on_grid(mean, covariance):
        gap = points - mean.numpy()
        values = np.exp(-0.5 * np.einsum("xyi,ij,xyj->xy", gap, np.linalg.inv(covariance.numpy()), gap))
        return values / integrate.simpson(integrate.simpson(values, x=grid), x=grid)

    product = np.sqrt(on_grid(mean_p, covariance_p) * on_grid(mean_q, covariance_q))
    expected = integrate.simpson(integrate.simpson(product, x=grid), x=grid)
    actual = log_bhattacharyya(mean_p, covariance_p, mean_q, covariance_q).exp()
    assert actual.item() == pytest.approx(expected, rel=1e-6)


def test_hand_values():
    # Equal means, variances 1 and 4 in one dimension: ρ = √(2·1·2/(1 + 4)) = √0.8.
    assert log_bhattacharyya_diagonal(tensor(0.0), tensor(1.0), tensor(0.0), tensor(4.0)).exp().item() == (
        pytest.approx(math.sqrt(0.8))
    )
    # Unit variances, means 2 apart: ρ = Sim_M = Sim_G = exp(-2²/8).
    for similarity in (log_bhattacharyya_diagonal, log_mahalanobis_diagonal):
        assert similarity(tensor(0.0), tensor(1.0), tensor(2.0), tensor(1.0)).item() == pytest.approx(-0.5)
    gaussian = log_gaussian(tensor(0.0), tensor(1.0), tensor(2.0), tensor(1.0), 3)
    assert gaussian.item() == pytest.approx(-1.5)


def test_full_covariance_reduces_to_the_diagonal_form():
    generator = torch.Generator().manual_seed(3)
    means = torch.randn(2, 7, 5, generator=generator, dtype=torch.float64)
    variances = 0.2 + torch.rand(2, 7, 5, generator=generator, dtype=torch.float64)
    p, q = (means[0], variances[0]), (means[1], variances[1])
    full_p, full_q = (means[0], variances[0].diag_embed()), (means[1], variances[1].diag_embed())
    torch.testing.assert_close(log_bhattacharyya(*full_p, *full_q), log_bhattacharyya_diagonal(*p, *q))
    torch.testing.assert_close(log_mahalanobis(*full_p, *full_q), log_mahalanobis_diagonal(*p, *q))


def test_diagonal_reduces_to_the_isotropic_form():
    p_mean, p_variance, q_mean, q_variance = 0.3, 1.7, -0.4, 0.9
    dim = 6
    columns = [
        torch.full((dim,), value, dtype=torch.float64) for value in (p_mean, p_variance, q_mean, q_variance)
    ]
    scalars = [tensor(value) for value in (p_mean, p_variance, q_mean, q_variance)]
    torch.testing.assert_close(
        log_bhattacharyya_diagonal(*columns).unsqueeze(0), log_bhattacharyya_isotropic(*scalars, dim)
    )
    torch.testing.assert_close(log_mahalanobis_diagonal(*columns).unsqueeze(0), log_gaussian(*scalars, dim))


def test_bhattacharyya_with_equal_covariances_is_mahalanobis():
    """Corollary 1 (i) and (ii)."""
    covariance = random_covariance(4, 5)
    mean_p, mean_q = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(
        log_bhattacharyya(mean_p, covariance, mean_q, covariance),
        log_mahalanobis(mean_p, covariance, mean_q, covariance),
    )
    same = (tensor(0.2), tensor(1.3), tensor(0.9), tensor(1.3))
    torch.testing.assert_close(log_bhattacharyya_isotropic(*same, 5), log_gaussian(*same, 5))


@given(means=arrays(float, 4, elements=MEANS), variances=arrays(float, 4, elements=VARIANCES))
@settings(max_examples=60, deadline=None)
def test_properties_of_a_similarity(means, variances):
    p = torch.tensor(means[:2]), torch.tensor(variances[:2])
    q = torch.tensor(means[2:]), torch.tensor(variances[2:])
    for similarity in (log_bhattacharyya_diagonal, log_mahalanobis_diagonal):
        assert similarity(*p, *q).item() <= 0
        torch.testing.assert_close(similarity(*p, *q), similarity(*q, *p))
        assert similarity(*p, *p).item() == 0
    # The scale factor only ever lowers the similarity.
    assert log_bhattacharyya_diagonal(*p, *q).item() <= log_mahalanobis_diagonal(*p, *q).item() + 1e-12


def test_close_variances_keep_their_precision_in_float32():
    """At D = 4096 the naive log((a + b) / 2√(ab)) is rounding noise here; log1p is right to six digits."""
    arguments = [torch.tensor([value]) for value in (0.0, 2.0, 0.0, 2.001)]
    exact = log_bhattacharyya_isotropic(*(a.double() for a in arguments), 4096).item()
    assert log_bhattacharyya_isotropic(*arguments, 4096).item() == pytest.approx(exact, rel=1e-5)
    naive = (
        -2048 * torch.log((arguments[1] + arguments[3]) / (2 * (arguments[1] * arguments[3]).sqrt())).item()
    )
    assert naive != pytest.approx(exact, rel=1e-2)


def test_huge_variances_do_not_overflow():
    arguments = [torch.tensor([value]) for value in (0.0, 1e30, 1e10, 2e30)]
    expected = log_bhattacharyya_isotropic(*(a.double() for a in arguments), 2)
    torch.testing.assert_close(
        log_bhattacharyya_isotropic(*arguments, 2).double(), expected, rtol=1e-5, atol=0
    )


@pytest.mark.parametrize("similarity", [log_bhattacharyya_diagonal, log_mahalanobis_diagonal])
def test_diagonal_gradients(similarity):
    generator = torch.Generator().manual_seed(1)
    means = torch.randn(2, 3, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    variances = (0.5 + torch.rand(2, 3, 4, generator=generator, dtype=torch.float64)).requires_grad_()
    assert torch.autograd.gradcheck(lambda m, v: similarity(m[0], v[0], m[1], v[1]), (means, variances))


@pytest.mark.parametrize("similarity", [log_bhattacharyya, log_mahalanobis])
def test_full_gradients(similarity):
    factors = torch.stack([random_covariance(3, 0), random_covariance(3, 1)]).requires_grad_()
    means = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)

    def from_factors(means, factors):
        covariances = factors @ factors.mT
        return similarity(means[0], covariances[0], means[1], covariances[1])

    assert torch.autograd.gradcheck(from_factors, (means, factors))


def test_a_covariance_that_is_not_positive_definite_is_refused():
    bad = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(ValueError, match="covariances_p must be positive definite"):
        log_bhattacharyya(torch.zeros(2), bad, torch.zeros(2), 5 * torch.eye(2))
    with pytest.raises(ValueError, match=r"^covariances_q must be positive .* minor of order 2 is not"):
        log_bhattacharyya(torch.zeros(2), 5 * torch.eye(2), torch.zeros(2), bad)
    for similarity in (log_bhattacharyya, log_mahalanobis):
        with pytest.raises(ValueError, match=r"^\(covariances_p \+ covariances_q\) / 2 must be positive def"):
            similarity(torch.zeros(2), bad, torch.zeros(2), bad)


def test_only_the_mean_of_two_covariances_matters_to_mahalanobis():
    one, other = random_covariance(3, 0), random_covariance(3, 1)
    gap = tensor(0.3, -0.4, 1.1)
    zero = torch.zeros(3, dtype=torch.float64)
    expected = -gap @ torch.linalg.inv((one + other) / 2) @ gap / 8
    torch.testing.assert_close(log_mahalanobis(gap, one, zero, other), expected)


def test_one_covariance_of_several_that_is_not_positive_definite_is_refused():
    covariances = torch.stack([torch.eye(3), torch.eye(3), torch.eye(3)])
    covariances[1, 2, 2] = -1.0
    with pytest.raises(ValueError, match=r"^covariances_q must be .* a leading minor of order 3 is not$"):
        log_bhattacharyya(torch.zeros(3, 3), 5 * torch.eye(3).expand(3, 3, 3), torch.zeros(3, 3), covariances)
