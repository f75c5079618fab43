"""The overlap of an image's own labels, our addition to the paper's terms."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kmcl.kernels import KERNELS, KernelMixture
from kmcl.losses import affinity_loss
from random_inputs import make_mixture, make_targets
from reference import loops


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("unknown", [0.0, 0.3])
@pytest.mark.parametrize("scale", [1.0, 1 / 3])
def test_equals_the_loop(kernel, unknown, scale):
    mixture = replace(make_mixture(kernel, 5, 4, 3), exponent_scale=scale)
    targets = make_targets(5, 4, unknown=unknown)
    expected = loops.affinity(mixture, targets)
    assert expected > 0.01
    assert affinity_loss(mixture, targets).item() == pytest.approx(expected, rel=1e-5)


def test_hand_value():
    """The present label's kernel is that of the second label and far from the third: errors 1, 0 and 0."""
    mixture = KernelMixture(torch.zeros(1, 3), torch.tensor([[1.0, 1.0, 90.0]]), torch.ones(1, 3), 1)
    assert affinity_loss(mixture, torch.tensor([[1, 0, 0]])).item() == pytest.approx(1 / 2)
    assert affinity_loss(mixture, torch.tensor([[1, 1, 0]])).item() == pytest.approx(0)
    assert affinity_loss(mixture, torch.tensor([[1, 1, 1]])).item() == pytest.approx(4 / 6)
    assert affinity_loss(mixture, torch.tensor([[1, -1, 0]])).item() == pytest.approx(0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients(kernel):
    mixture, targets = make_mixture(kernel, 4, 3, 2), make_targets(4, 3, unknown=0.2)

    def value(means, variances):
        return affinity_loss(KernelMixture(mixture.logits, means, variances, 2, kernel), targets)

    tensors = (mixture.means, mixture.variances)
    assert torch.autograd.gradcheck(value, [t.clone().requires_grad_() for t in tensors])


@pytest.mark.parametrize(
    "row", [[0, 0, 0], [-1, -1, -1], [1, -1, -1]], ids=["no label", "nothing known", "one known"]
)
def test_an_image_without_a_pair_adds_nothing(row):
    mixture = make_mixture("isotropic", 1, 3, 5)
    mixture = replace(mixture, means=mixture.means.requires_grad_())
    loss = affinity_loss(mixture, torch.tensor([row]))
    loss.backward()
    assert loss.item() == 0
    assert torch.equal(mixture.means.grad, torch.zeros(1, 3, dtype=torch.float64))


def test_what_minimises_it_is_how_often_the_other_label_comes_along():
    """Kernels alike in every image learn P(l is there | k is) as overlap.

    Four images have label 0, three of these label 1 too, and each image counts once: 3/4.
    """
    targets = torch.tensor([[1, 1], [1, 1], [1, 1], [1, 0], [0, 0]])
    overlaps = torch.linspace(0.05, 1, 96, dtype=torch.float64)
    gaps = (-8 * overlaps.log()).sqrt()
    losses = []
    for gap in gaps:
        means = torch.stack([torch.zeros_like(gap), gap]).expand(5, 2)
        mixture = KernelMixture(torch.zeros(5, 2, dtype=torch.float64), means, torch.ones_like(means), 1)
        losses.append(affinity_loss(mixture, targets).item())
    assert overlaps[losses.index(min(losses))].item() == pytest.approx(0.75)


def test_half_precision_is_computed_in_float32():
    mixture, targets = make_mixture("isotropic", 6, 5, 4, dtype=torch.float32), make_targets(6, 5)
    half = replace(
        mixture, logits=mixture.logits.half(), means=mixture.means.half(), variances=mixture.variances.half()
    )
    loss = affinity_loss(half, targets)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(affinity_loss(mixture, targets).item(), rel=1e-2)


def test_targets_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"targets must have the shape of the mixture's logits"):
        affinity_loss(make_mixture("isotropic", 2, 3, 4), torch.ones(2, 2))
