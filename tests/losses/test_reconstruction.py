"""Eq. 5."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kmcl.kernels import KERNELS, KernelMixture
from kmcl.losses import ReconstructionLoss, reconstruction_loss
from random_inputs import make_mixture, make_targets
from reference import loops


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("unknown", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_loop(kernel, unknown, dtype):
    mixture, targets = make_mixture(kernel, 5, 4, 3, dtype=dtype), make_targets(5, 4, unknown=unknown)
    features = torch.randn(5, 3, dtype=dtype)
    expected = loops.reconstruction(features, mixture, targets)
    assert expected > 0.1
    assert reconstruction_loss(features, mixture, targets).item() == pytest.approx(expected, rel=1e-5)


def test_hand_value():
    """Two equal kernels, π = 0.5 and 0.25, the first label present: -log(0.5 / 0.75)."""
    logits = torch.tensor([[0.0, -torch.tensor(3.0).log().item()]])
    mixture = KernelMixture(logits, torch.zeros(1, 2), torch.ones(1, 2), 7)
    loss = reconstruction_loss(torch.ones(1, 7), mixture, torch.tensor([[1, 0]]))
    assert loss.item() == pytest.approx(0.405465, rel=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients(kernel):
    mixture, targets = make_mixture(kernel, 4, 3, 2), make_targets(4, 3, unknown=0.2)
    features = torch.randn(4, 2, dtype=torch.float64)

    def value(features, logits, means, variances):
        return reconstruction_loss(features, KernelMixture(logits, means, variances, 2, kernel), targets)

    tensors = (features, mixture.logits, mixture.means, mixture.variances)
    assert torch.autograd.gradcheck(value, [t.clone().requires_grad_() for t in tensors])


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_never_negative_and_falls_when_a_present_label_rises(seed):
    mixture, targets = make_mixture("isotropic", 3, 4, 5, seed=seed), make_targets(3, 4, seed=seed)
    features = torch.randn(3, 5, dtype=torch.float64)
    raised = KernelMixture(
        mixture.logits + targets, mixture.means, mixture.variances, mixture.feature_dim, mixture.kernel
    )
    before, after = (reconstruction_loss(features, m, targets).item() for m in (mixture, raised))
    assert 0 <= after <= before


def test_images_without_a_label_add_nothing_but_count():
    mixture, targets = (
        make_mixture("isotropic", 4, 3, 5),
        torch.tensor([[1, 0, 0], [0, 0, 0], [0, 1, 1], [0, 0, 0]]),
    )
    features = torch.randn(4, 5, dtype=torch.float64)
    labelled = torch.tensor([0, 2])
    part = KernelMixture(mixture.logits[labelled], mixture.means[labelled], mixture.variances[labelled], 5)
    torch.testing.assert_close(
        reconstruction_loss(features, mixture, targets),
        reconstruction_loss(features[labelled], part, targets[labelled]) / 2,
    )


@pytest.mark.parametrize("row", [[1, 1, 1], [0, 0, 0]])
def test_images_with_all_labels_or_none_get_no_gradient_beside_others(row: list[int]):
    mixture = make_mixture("isotropic", 2, 3, 5)
    means = mixture.means.clone().requires_grad_()
    targets = torch.tensor([row, [1, 0, 0]])
    reconstruction_loss(
        torch.randn(2, 5, dtype=torch.float64), replace(mixture, means=means), targets
    ).backward()
    assert means.grad is not None
    assert (means.grad[0] == 0).all()
    assert (means.grad[1].abs() > 0).all()


def test_log_kernels_far_below_underflow_keep_value_and_gradient():
    """exp(-2600) is 0 in every precision; the ratio of the mixtures is not."""
    features = torch.full((1, 2048), 3.0)
    means = torch.tensor([[1.4, 1.39]], requires_grad=True)
    mixture = KernelMixture(torch.zeros(1, 2), means, torch.ones(1, 2), 2048)
    loss = reconstruction_loss(features, mixture, torch.tensor([[0, 1]]))
    loss.backward()
    assert loss.item() == pytest.approx(0.5 * 2048 * (1.61**2 - 1.6**2), rel=1e-4)
    assert means.grad is not None
    assert means.grad.abs().min() > 100


@pytest.mark.usefixtures("no_shape_checks")
def test_wrong_arguments_are_named():
    mixture, targets = make_mixture("isotropic", 2, 3, 4), make_targets(2, 3)
    features = torch.zeros(2, 4, dtype=torch.float64)
    features[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"features must be finite; got nan at position \[1, 2\]"):
        reconstruction_loss(features, mixture, targets)
    for name in ("logits", "means", "variances"):
        with pytest.raises(
            ValueError, match=rf"^mixture\.{name} must be finite; got nan at position \[0, 0\]"
        ):
            reconstruction_loss(
                features.nan_to_num(), replace(mixture, **{name: getattr(mixture, name) * torch.nan}), targets
            )
    with pytest.raises(ValueError, match=r"features must be floating point; got torch.int64"):
        reconstruction_loss(features.nan_to_num().long(), mixture, targets)
    with pytest.raises(ValueError, match=r"targets must have the shape of.*\(2, 3\); got \(2, 2\)"):
        reconstruction_loss(features.nan_to_num(), mixture, targets[:, :2])


def test_module_is_the_function():
    mixture, targets, features = (
        make_mixture("isotropic", 2, 3, 4),
        make_targets(2, 3),
        torch.randn(2, 4).double(),
    )
    assert ReconstructionLoss()(features, mixture, targets) == reconstruction_loss(features, mixture, targets)
