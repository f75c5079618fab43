"""Eq. 6."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional

from kmcl.losses import AsymmetricLoss, asymmetric_loss
from random_inputs import make_targets
from reference import loops

SETTINGS = list(itertools.product([0.0, 0.5, 1.0], [0.0, 0.5, 4.0], [0.0, 0.05, 0.3]))


@pytest.mark.parametrize(("positive_focus", "negative_focus", "margin"), SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_loop(positive_focus, negative_focus, margin, dtype):
    logits = 3 * torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=dtype)
    targets = make_targets(6, 5, unknown=0.2)
    expected = loops.asymmetric(logits, targets, positive_focus, negative_focus, margin)
    actual = asymmetric_loss(
        logits,
        targets,
        positive_focus=positive_focus,
        negative_focus=negative_focus,
        probability_margin=margin,
    )
    assert actual.item() == pytest.approx(expected, rel=1e-5)


def test_without_focus_and_margin_it_is_binary_cross_entropy():
    logits, targets = 5 * torch.randn(4, 6, dtype=torch.float64), make_targets(4, 6)
    actual = asymmetric_loss(logits, targets, negative_focus=0.0, probability_margin=0.0)
    expected = functional.binary_cross_entropy_with_logits(logits, targets.double(), reduction="sum") / 4
    torch.testing.assert_close(actual, expected)


def test_hand_value():
    """π = 0.5 for both: -log 0.5 for the present label, -0.45⁴ log 0.55 for the absent one."""
    loss = asymmetric_loss(torch.zeros(1, 2), torch.tensor([[1, 0]]))
    assert loss.item() == pytest.approx(0.6931472 + 0.0245154, rel=1e-5)


@pytest.mark.parametrize(("positive_focus", "negative_focus", "margin"), SETTINGS)
def test_gradients(positive_focus, negative_focus, margin):
    logits = 2 * torch.randn(3, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = make_targets(3, 4, unknown=0.2)
    assert torch.autograd.gradcheck(
        lambda x: asymmetric_loss(
            x,
            targets,
            positive_focus=positive_focus,
            negative_focus=negative_focus,
            probability_margin=margin,
        ),
        logits.requires_grad_(),
    )


@pytest.mark.parametrize(("positive_focus", "negative_focus", "margin"), SETTINGS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_certain_logits_have_finite_values_and_gradients(positive_focus, negative_focus, margin, dtype):
    # -2.944439 is where the probability meets the margin of 0.05.
    logits = torch.tensor([[-6e4, -200.0, -2.944439, 0.0, 200.0, 6e4]] * 2, dtype=dtype, requires_grad=True)
    targets = torch.tensor([[1] * 6, [0] * 6])
    loss = asymmetric_loss(
        logits,
        targets,
        positive_focus=positive_focus,
        negative_focus=negative_focus,
        probability_margin=margin,
    )
    loss.backward()
    assert loss.dtype == torch.float32
    assert torch.isfinite(loss)
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_easy_negatives_cost_nothing():
    logits = torch.tensor([[-3.0, -4.0]], requires_grad=True)  # π below the margin of 0.05
    loss = asymmetric_loss(logits, torch.tensor([[0, 0]]))
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert (logits.grad == 0).all()


@pytest.mark.parametrize("negative_focus", [0.0, 0.5, 4.0])
def test_a_probability_exactly_at_the_margin_costs_nothing(negative_focus):
    logits = torch.tensor([[-1.3]], dtype=torch.float64, requires_grad=True)
    margin = functional.logsigmoid(logits).exp().item()
    loss = asymmetric_loss(
        logits, torch.tensor([[0]]), negative_focus=negative_focus, probability_margin=margin
    )
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert logits.grad.item() == 0


@pytest.mark.parametrize(
    ("dtype", "margin", "logit"),
    [
        (torch.float32, 0.35505622482262783, -0.5968869924545288),
        (torch.float32, 0.681081794308848, 0.7587478160858154),
        (torch.float32, 0.4946381272944208, -0.021448403596878052),
        (torch.float64, 0.17874896285034944, -1.5248464533680537),
        (torch.float64, 0.5329932107780009, 0.13216489082054664),
    ],
)
def test_no_absent_label_costs_less_than_nothing(dtype, margin, logit):
    """Just above the margin, where rounding makes log(1 - π + m) positive."""
    logits = torch.tensor([[logit]], dtype=dtype)
    loss = asymmetric_loss(logits, torch.zeros(1, 1), negative_focus=0.0, probability_margin=margin)
    assert loss.item() >= 0


@pytest.mark.usefixtures("no_shape_checks")
def test_wrong_arguments_are_named():
    logits, targets = torch.zeros(2, 3), torch.zeros(2, 3)
    with pytest.raises(ValueError, match=r"targets must be 0, 1 or unknown .* got 2\.0 for image 1, label 0"):
        asymmetric_loss(logits, torch.tensor([[0.0, 0, 0], [2, 0, 0]]))
    with pytest.raises(ValueError, match=r"targets must have the shape of logits, \(2, 3\); got \(2, 2\)"):
        asymmetric_loss(logits, targets[:, :2])
    with pytest.raises(ValueError, match=r"logits must be finite; got inf at position \[0, 1\]"):
        asymmetric_loss(torch.tensor([[0, torch.inf]]), targets[:1, :2])
    with pytest.raises(ValueError, match=r"probability_margin must be .* got 1\.5"):
        AsymmetricLoss(probability_margin=1.5)
    with pytest.raises(ValueError, match=r"negative_focus must be a finite number at least 0; got -1"):
        AsymmetricLoss(negative_focus=-1)


def test_module_passes_each_parameter_on():
    logits, targets = torch.randn(3, 4), make_targets(3, 4)
    module = AsymmetricLoss(positive_focus=0.5, negative_focus=2.0, probability_margin=0.1)
    expected = loops.asymmetric(logits, targets, 0.5, 2.0, 0.1)
    assert module(logits, targets).item() == pytest.approx(expected, rel=1e-5)
    of_the_paper = loops.asymmetric(logits, targets, 0.0, 4.0, 0.05)
    assert AsymmetricLoss()(logits, targets).item() == pytest.approx(of_the_paper, rel=1e-5)
    assert asymmetric_loss(logits, targets).item() == pytest.approx(of_the_paper, rel=1e-5)


def test_a_number_of_images_replaces_that_of_the_batch():
    logits, targets = torch.randn(3, 4), make_targets(3, 4)
    torch.testing.assert_close(
        asymmetric_loss(logits, targets, num_images=12), asymmetric_loss(logits, targets) / 4
    )


@pytest.mark.parametrize(("positive_focus", "margin"), [(0.0, 0.05), (1.5, 0.2), (1.0, 0.0)])
def test_detached_focus_has_the_value_and_the_gradient_of_constant_factors(positive_focus, margin):
    logits = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 2
    logits[0, 0], logits[1, 1] = -8.0, 9.0
    targets = make_targets(6, 5, unknown=0.2)
    options = {"positive_focus": positive_focus, "negative_focus": 4.0, "probability_margin": margin}
    logits.requires_grad_()
    loss = asymmetric_loss(logits, targets, detach_focus=True, **options)
    torch.testing.assert_close(loss, asymmetric_loss(logits, targets, **options))
    (found,) = torch.autograd.grad(loss, logits)
    expected = loops.detached_asymmetric_gradient(logits, targets, positive_focus, 4.0, margin)
    torch.testing.assert_close(found, torch.from_numpy(expected), rtol=1e-9, atol=1e-14)
    (plain,) = torch.autograd.grad(asymmetric_loss(logits, targets, **options), logits)
    assert (plain - found).abs().max() > 0.1 * found.abs().max()
