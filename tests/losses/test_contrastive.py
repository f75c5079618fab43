"""Eq. 7."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dense import dense_contrastive_loss
from kmcl.kernels import KERNELS, KernelMixture
from kmcl.losses import Candidates, ContrastiveLoss, contrastive_loss
from random_inputs import make_mixture, make_targets
from reference import loops


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("unknown", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_loop(kernel, unknown, dtype):
    mixture, targets = make_mixture(kernel, 6, 4, 3, dtype=dtype), make_targets(6, 4, unknown=unknown)
    expected = loops.contrastive(mixture, targets, 0.2)
    assert expected > 0.1
    assert contrastive_loss(mixture, targets).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_equals_the_dense_form_forward_and_backward(kernel):
    targets = make_targets(12, 6, rate=0.3)
    gradients = []
    for loss in (contrastive_loss, dense_contrastive_loss):
        mixture = make_mixture(kernel, 12, 6, 5)
        mixture = replace(
            mixture, means=mixture.means.requires_grad_(), variances=mixture.variances.requires_grad_()
        )
        value = loss(mixture, targets, temperature=0.1)
        value.backward()
        gradients.append((value.detach(), mixture.means.grad, mixture.variances.grad))
    torch.testing.assert_close(*gradients)


def test_hand_value():
    """Three images of one label, two of them equal: ρ = 1 between these, ρ = exp(-½) to the third (D = 1)."""
    mixture = KernelMixture(torch.zeros(3, 1), torch.tensor([[0.0], [0.0], [2.0]]), torch.ones(3, 1), 1)
    loss = contrastive_loss(mixture, torch.ones(3, 1), temperature=1.0)
    rho = torch.tensor(-0.5).exp()
    twin = torch.log(torch.e + rho.exp()) - (1 + rho) / 2
    lone = torch.log(2 * rho.exp()) - rho
    torch.testing.assert_close(loss, (2 * twin + lone) / 3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_it_creates_is_on_the_device_of_its_inputs(kernel):
    """Not on torch's default device: here one that holds no numbers."""
    mixture, targets = make_mixture(kernel, 6, 4, 3), make_targets(6, 4)
    expected = contrastive_loss(mixture, targets)
    with torch.device("meta"):
        assert contrastive_loss(mixture, targets) == expected


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("unknown", [0.0, 0.3])
def test_the_jaccard_index_may_be_inside_the_logarithm(kernel, unknown):
    """The value is the loop's; the gradient is checked numerically."""
    mixture, targets = make_mixture(kernel, 6, 4, 3), make_targets(6, 4, unknown=unknown)
    found = contrastive_loss(mixture, targets, temperature=0.17, jaccard_in_log=True)
    expected = loops.contrastive(mixture, targets, 0.17, jaccard_in_log=True)
    assert found.item() == pytest.approx(expected, rel=1e-10)
    assert found.item() != pytest.approx(loops.contrastive(mixture, targets, 0.17), rel=0.01)

    small, few = make_mixture(kernel, 4, 2, 2), make_targets(4, 2, rate=0.7, unknown=unknown)

    def value(means, variances):
        moved = replace(small, means=means, variances=variances)
        return contrastive_loss(moved, few, jaccard_in_log=True)

    assert torch.autograd.gradcheck(
        value, [t.clone().requires_grad_() for t in (small.means, small.variances)]
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients(kernel):
    mixture, targets = make_mixture(kernel, 5, 3, 2), make_targets(5, 3, unknown=0.2)

    def value(means, variances):
        return contrastive_loss(replace(mixture, means=means, variances=variances), targets)

    inputs = [t.clone().requires_grad_() for t in (mixture.means, mixture.variances)]
    assert torch.autograd.gradcheck(value, inputs)
    assert torch.autograd.gradgradcheck(value, inputs)


@given(seed=st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_order_of_images_and_labels_does_not_matter(seed):
    mixture, targets = make_mixture("isotropic", 6, 4, 3, seed=seed), make_targets(6, 4, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.randperm(6, generator=generator), torch.randperm(4, generator=generator)
    shuffled = KernelMixture(
        mixture.logits[rows][:, columns],
        mixture.means[rows][:, columns],
        mixture.variances[rows][:, columns],
        3,
    )
    torch.testing.assert_close(
        contrastive_loss(mixture, targets), contrastive_loss(shuffled, targets[rows][:, columns])
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_anchors_in_parts_add_up_to_the_whole_batch(kernel):
    mixture, targets = make_mixture(kernel, 6, 4, 3), make_targets(6, 4)
    whole = contrastive_loss(mixture, targets)
    parts = []
    for rows in (slice(0, 2), slice(2, 6)):
        anchors = replace(
            mixture, logits=mixture.logits[rows], means=mixture.means[rows], variances=mixture.variances[rows]
        )
        candidates = Candidates(mixture, targets, first_anchor=rows.start)
        parts.append(contrastive_loss(anchors, targets[rows], candidates=candidates, num_images=6))
    torch.testing.assert_close(sum(parts), whole)


def test_an_unlabelled_image_is_no_anchor_but_stands_in_denominators():
    mixture, targets = make_mixture("isotropic", 3, 2, 4), torch.tensor([[1, 0], [1, 1], [0, 0]])
    pair = KernelMixture(mixture.logits[:2], mixture.means[:2], mixture.variances[:2], 4)
    with_it, without_it = contrastive_loss(mixture, targets), contrastive_loss(pair, targets[:2])
    assert without_it.item() == 0  # one positive, alone in its denominator
    assert with_it.item() > 0.01


@pytest.mark.usefixtures("no_shape_checks")
def test_wrong_arguments_are_named():
    mixture, targets = make_mixture("isotropic", 3, 2, 4), make_targets(3, 2)
    with pytest.raises(ValueError, match=r"temperature must be a finite number above 0; got 0"):
        ContrastiveLoss(temperature=0)
    with pytest.raises(ValueError, match=r"targets must have the shape of .* got \(2, 2\)"):
        contrastive_loss(mixture, targets[:2])
    with pytest.raises(ValueError, match=r"candidates\.first_anchor must leave room .* got 1"):
        contrastive_loss(mixture, targets, candidates=Candidates(mixture, targets, first_anchor=1))
    other = make_mixture("gaussian", 3, 2, 4)
    with pytest.raises(ValueError, match=r"candidates\.mixture must be isotropic of dimension 4"):
        contrastive_loss(mixture, targets, candidates=Candidates(other, targets, first_anchor=0))
    with pytest.raises(ValueError, match=r"mixture\.means must be finite; got nan"):
        contrastive_loss(replace(mixture, means=mixture.means * torch.nan), targets)
    with pytest.raises(ValueError, match=r"^mixture\.variances must be finite; got nan"):
        contrastive_loss(replace(mixture, variances=mixture.variances * torch.nan), targets)


@pytest.mark.usefixtures("no_shape_checks")
def test_candidates_that_do_not_fit_are_refused():
    mixture, targets = make_mixture("isotropic", 3, 2, 4), make_targets(3, 2)

    def refuse(candidates: Candidates, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            contrastive_loss(mixture, targets, candidates=candidates)

    refuse(Candidates(mixture, targets, first_anchor=-1), r"leave room for 3 anchors among 3 .* got -1$")
    for change in ({"feature_dim": 5}, {"exponent_scale": 0.5}):
        refuse(
            Candidates(replace(mixture, **change), targets, 0), "must be isotropic of dimension 4 and scale 1"
        )
    refuse(
        Candidates(mixture, targets[:, :1], 0),
        r"^candidates\.targets must have the shape of candidates\.mixture's logits, \(3, 2\); got \(3, 1\)$",
    )
    refuse(Candidates(mixture, torch.full((3, 2), 5), 0), r"^candidates\.targets must be 0, 1 or .* got 5")


def test_module_passes_its_temperature_on():
    mixture, targets = make_mixture("isotropic", 5, 3, 4), make_targets(5, 3)
    expected = loops.contrastive(mixture, targets, 0.7)
    assert ContrastiveLoss(temperature=0.7)(mixture, targets).item() == pytest.approx(expected)
    of_the_paper = loops.contrastive(mixture, targets, 0.2)
    assert ContrastiveLoss()(mixture, targets).item() == pytest.approx(of_the_paper)
    candidates = Candidates(mixture, targets, first_anchor=2)
    anchors = make_mixture("isotropic", 5, 3, 4)
    anchors = replace(
        anchors, logits=anchors.logits[2:4], means=anchors.means[2:4], variances=anchors.variances[2:4]
    )
    torch.testing.assert_close(
        ContrastiveLoss()(anchors, targets[2:4], candidates),
        contrastive_loss(anchors, targets[2:4], candidates=candidates),
    )


@pytest.mark.parametrize("kernel", ["anisotropic", "mahalanobis"])
def test_nothing_of_size_pairs_times_candidates_times_dimension_is_kept(kernel):
    """What autograd saves for the backward pass stays below the inputs plus pairs x candidates."""
    batch_size, num_labels, feature_dim = 48, 4, 256
    mixture, targets = (
        make_mixture(kernel, batch_size, num_labels, feature_dim),
        make_targets(batch_size, num_labels),
    )
    mixture = replace(
        mixture, means=mixture.means.requires_grad_(), variances=mixture.variances.requires_grad_()
    )
    saved: dict[int, int] = {}

    def remember(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = (
            tensor.untyped_storage().nbytes() // tensor.element_size()
        )
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(remember, lambda tensor: tensor):
        contrastive_loss(mixture, targets)
    num_pairs = int((targets == 1).sum())
    inputs = mixture.means.numel() + mixture.variances.numel()
    assert inputs <= sum(saved.values()) < inputs + 20 * num_pairs * batch_size
    assert inputs + 20 * num_pairs * batch_size < num_pairs * batch_size * feature_dim / 4
