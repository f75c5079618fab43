"""Eq. 4 against loops and torch.distributions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kmcl.errors import InputError
from kmcl.kernels import KERNELS, KernelMixture, log_components, log_kernel, log_mixture
from random_inputs import make_mixture, make_targets
from reference import loops


@pytest.mark.parametrize("kernel", KERNELS)
def test_log_kernel_is_a_normal_density_without_its_constant(kernel):
    mixture = make_mixture(kernel, 3, 4, 5)
    features = torch.randn(3, 5, dtype=torch.float64)
    means, variances = (torch.from_numpy(array.copy()) for array in loops.expand(mixture))
    normal = torch.distributions.Normal(means, variances.sqrt())
    expected = (normal.log_prob(features[:, None]) - normal.log_prob(means)).sum(dim=-1)
    torch.testing.assert_close(log_kernel(features, mixture), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_exponent_scale_multiplies_the_log_kernel(kernel):
    mixture = make_mixture(kernel, 3, 4, 5)
    features = torch.randn(3, 5, dtype=torch.float64)
    scaled = replace(mixture, exponent_scale=0.25)
    torch.testing.assert_close(log_kernel(features, scaled), log_kernel(features, mixture) / 4)
    # Eq. 4: the scale is in the exponent, not in the probability.
    torch.testing.assert_close(
        log_components(features, scaled), mixture.probabilities.log() + log_kernel(features, mixture) / 4
    )


def test_without_a_scale_the_kernels_are_the_papers():
    mixture = make_mixture("isotropic", 3, 4, 5)
    plain = KernelMixture(mixture.logits, mixture.means, mixture.variances, 5)
    assert (plain.kernel, plain.exponent_scale) == ("isotropic", 1)


def test_log_mixture_sums_the_members_only():
    mixture = make_mixture("isotropic", 2, 4, 3)
    features = torch.randn(2, 3, dtype=torch.float64)
    members = torch.tensor([[True, False, True, False], [False, True, True, True]])
    components = log_components(features, mixture)
    expected = ((mixture.probabilities * log_kernel(features, mixture).exp()) * members).sum(dim=1)
    torch.testing.assert_close(log_mixture(components, members).exp(), expected)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients(kernel):
    mixture = make_mixture(kernel, 2, 3, 4)
    tensors = (torch.randn(2, 4, dtype=torch.float64), mixture.logits, mixture.means, mixture.variances)
    members = make_targets(2, 3, rate=1.0).bool()

    def value(features, logits, means, variances):
        return log_mixture(
            log_components(features, KernelMixture(logits, means, variances, 4, kernel)), members
        )

    assert torch.autograd.gradcheck(value, [t.clone().requires_grad_() for t in tensors])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    mixture = make_mixture("isotropic", 2, 3, 4, dtype=dtype)
    features = torch.randn(2, 4, dtype=dtype)
    for formula in (log_kernel, log_components):
        result = formula(features, mixture)
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, formula(features.float(), mixture.at_least_float32()))


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_of_float16_that_it_cannot_hold_are_limited(kernel):
    """Features of 60,000: the gradients of Eq. 4 pass the largest number of float16, which is 65,504."""
    mixture = make_mixture(kernel, 2, 3, 4, dtype=torch.float16)
    features = torch.full((2, 4), 6e4, dtype=torch.float16)
    tensors = [tensor.requires_grad_() for tensor in (features, mixture.means, mixture.variances)]
    log_kernel(features, mixture).sum().backward()
    for tensor in tensors:
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
        assert tensor.grad.abs().max() >= 16376  # 65504 / 4, the limit


def test_label_variances_have_one_number_per_label():
    for kernel in KERNELS:
        assert make_mixture(kernel, 2, 3, 4).label_variances.shape == (2, 3)
    anisotropic = make_mixture("anisotropic", 2, 3, 4)
    torch.testing.assert_close(anisotropic.label_variances, anisotropic.variances.mean(dim=-1))
    shared = make_mixture("mahalanobis", 2, 3, 4)
    for label in range(3):
        torch.testing.assert_close(shared.label_variances[:, label], shared.variances[:, 0].mean(dim=-1))
    gaussian = make_mixture("gaussian", 2, 3, 4)
    assert gaussian.label_variances.tolist() == [[row.item()] * 3 for row in gaussian.variances]


@pytest.mark.usefixtures("no_shape_checks")
def test_wrong_arguments_are_named():
    good = make_mixture("isotropic", 2, 3, 4)
    with pytest.raises(
        ValueError, match=r"variances of the isotropic kernel must have shape \(2, 3\); got \(2, 1\)"
    ):
        KernelMixture(good.logits, good.means, good.variances[:, :1], 4)
    with pytest.raises(
        ValueError, match=r"means of the isotropic kernel must have shape \(2, 3\); got \(2, 2\)"
    ):
        KernelMixture(good.logits, good.means[:, :2], good.variances, 4)
    with pytest.raises(
        ValueError, match=r"means of the isotropic kernel must have shape \(2, 3\); got \(1, 3\)"
    ):
        KernelMixture(good.logits, good.means[:1], good.variances, 4)
    with pytest.raises(ValueError, match=r"^logits must be B x L; got shape \(2, 3, 1\)"):
        KernelMixture(good.logits.unsqueeze(2), good.means, good.variances, 4)
    for name in ("means", "variances"):
        with pytest.raises(ValueError, match=rf"^{name} must be floating point; got torch\.int64"):
            replace(good, **{name: getattr(good, name).long()})
    with pytest.raises(InputError, match=r"kernel must be one of isotropic, anisotropic, .*got 'cubic'"):
        KernelMixture(good.logits, good.means, good.variances, 4, "cubic")
    with pytest.raises(ValueError, match=r"logits must be floating point; got torch\.int64"):
        KernelMixture(good.logits.long(), good.means, good.variances, 4)
    with pytest.raises(ValueError, match=r"features must be B x D = \(2, 4\).*got \(2, 5\)"):
        log_kernel(torch.zeros(2, 5), good)
