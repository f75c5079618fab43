"""Eq. 8, and what all three losses share: unknown labels, degenerate batches, extreme and half precision."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kmcl.errors import InputError
from kmcl.kernels import KERNELS, KernelMixture
from kmcl.losses import (
    OBJECTIVES,
    KMCLObjective,
    ObjectiveSettings,
    contrastive_loss,
    kmcl_objective,
    reconstruction_loss,
)
from kmcl.methods.kmcl import KernelMixtureHead
from random_inputs import DEGENERATE_TARGETS, make_mixture, make_targets
from reference import loops

WEIGHTS = ("reconstruction_weight", "classification_weight", "contrastive_weight")


def choose(mixture: KernelMixture, rows, columns) -> KernelMixture:
    def part(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor[rows]
        return tensor if tensor.shape[1] == 1 else tensor[:, columns]

    return replace(
        mixture, logits=part(mixture.logits), means=part(mixture.means), variances=part(mixture.variances)
    )


def test_unequal_weights_reach_their_own_terms():
    mixture, targets = make_mixture("isotropic", 5, 4, 3), make_targets(5, 4)
    features = torch.randn(5, 3, dtype=torch.float64)
    weights = ObjectiveSettings(reconstruction_weight=2, classification_weight=3, contrastive_weight=5)
    terms = kmcl_objective(features, mixture, targets, weights)
    assert len({round(term.item(), 9) for term in terms}) == 4
    torch.testing.assert_close(
        terms.total, 2 * terms.reconstruction + 3 * terms.classification + 5 * terms.contrastive
    )
    torch.testing.assert_close(terms, KMCLObjective(weights)(features, mixture, targets))


def test_presets_are_the_papers_and_the_released_codes():
    paper, released = OBJECTIVES["paper"], OBJECTIVES["released"]
    assert (paper.reconstruction_weight, paper.classification_weight, paper.contrastive_weight) == (
        1,
        0.1,
        0.3,
    )
    assert (paper.temperature, paper.positive_focus, paper.negative_focus) == (0.2, 0, 4)
    assert paper.probability_margin == 0.05
    assert released.temperature == 0.17
    assert (paper.detach_focus, paper.jaccard_in_log) == (False, False)
    assert (released.detach_focus, released.jaccard_in_log) == (True, True)
    assert (released.positive_focus, released.negative_focus, released.probability_margin) == (0, 4, 0.05)
    assert released.classification_weight == 1
    ratio = released.classification_weight / released.reconstruction_weight
    assert ratio == released.classification_weight / released.contrastive_weight == 64


def test_the_form_with_kernels_weighs_classification_most():
    default = OBJECTIVES["kernels"]
    weights = (default.reconstruction_weight, default.classification_weight, default.contrastive_weight)
    assert weights == (0.1, 1, 0.1)
    assert default == replace(OBJECTIVES["paper"], **dict(zip(WEIGHTS, weights, strict=True)))
    assert KMCLObjective.from_preset().settings is default
    assert KMCLObjective.from_preset("released").settings is OBJECTIVES["released"]
    assert KMCLObjective().settings is OBJECTIVES["paper"]
    with pytest.raises(InputError, match=r"^preset must be one of kernels, paper, released; got 'best'$"):
        KMCLObjective.from_preset("best")


def test_branches_are_classified_separately_and_averaged():
    mixture, targets = make_mixture("isotropic", 5, 4, 3), make_targets(5, 4)
    features = torch.randn(5, 3, dtype=torch.float64)
    branches = [mixture.logits + 1, mixture.logits - 2]
    plain = kmcl_objective(features, mixture, targets)
    found = kmcl_objective(features, mixture, targets, branches=branches)
    expected = sum(loops.asymmetric(logits, targets, 0, 4, 0.05) for logits in branches) / 2
    assert found.classification.item() == pytest.approx(expected)
    assert (found.reconstruction, found.contrastive) == (plain.reconstruction, plain.contrastive)
    branches[1] = branches[1].clone()
    branches[1][2, 3] = torch.nan
    with pytest.raises(ValueError, match=r"^branches\[1\] must be finite; got nan at position \[2, 3\]$"):
        kmcl_objective(features, mixture, targets, branches=branches)


def test_settings_reach_their_terms():
    mixture, targets = make_mixture("isotropic", 6, 4, 3), make_targets(6, 4)
    features = torch.randn(6, 3, dtype=torch.float64)
    settings = ObjectiveSettings(
        temperature=0.5, positive_focus=1.5, negative_focus=2.0, probability_margin=0.2, jaccard_in_log=True
    )
    terms = kmcl_objective(features, mixture, targets, settings)
    assert terms.reconstruction.item() == pytest.approx(loops.reconstruction(features, mixture, targets))
    assert terms.classification.item() == pytest.approx(
        loops.asymmetric(mixture.logits, targets, 1.5, 2.0, 0.2)
    )
    assert terms.contrastive.item() == pytest.approx(
        loops.contrastive(mixture, targets, 0.5, jaccard_in_log=True)
    )


@pytest.mark.parametrize("targets", DEGENERATE_TARGETS.values(), ids=DEGENERATE_TARGETS.keys())
def test_degenerate_batches_of_the_released_objective_are_finite(targets):
    mixture = make_mixture("isotropic", len(targets), 4, 3)
    mixture = replace(mixture, means=mixture.means.requires_grad_())
    features = torch.randn(len(targets), 3, dtype=torch.float64)
    terms = kmcl_objective(features, mixture, targets, OBJECTIVES["released"])
    terms.total.backward()
    assert all(torch.isfinite(term) and term >= 0 for term in terms)
    assert mixture.means.grad is not None
    assert torch.isfinite(mixture.means.grad).all()


@pytest.mark.usefixtures("no_shape_checks")
def test_targets_of_another_shape_are_refused():
    mixture = make_mixture("isotropic", 5, 4, 3)
    message = r"^targets must have the shape of the mixture's logits, \(5, 4\); got \(5, 3\)$"
    for use in (
        lambda targets: kmcl_objective(torch.zeros(5, 3), mixture, targets),
        lambda targets: reconstruction_loss(torch.zeros(5, 3), mixture, targets),
        lambda targets: contrastive_loss(mixture, targets),
    ):
        with pytest.raises(ValueError, match=message):
            use(make_targets(5, 3))


@pytest.mark.usefixtures("no_shape_checks")
def test_a_shape_is_refused_before_processes_exchange_anything(monkeypatch: pytest.MonkeyPatch):
    """Others would wait for ever for a process that fails later."""

    def exchange(*arguments: object) -> None:
        raise AssertionError("exchanged")

    monkeypatch.setattr("kmcl.losses.objective.is_distributed", lambda: True)
    monkeypatch.setattr("kmcl.losses.objective.gather_candidates", exchange)
    mixture = make_mixture("isotropic", 5, 4, 3)
    with pytest.raises(ValueError, match=r"^targets must have the shape of the mixture's logits"):
        kmcl_objective(torch.zeros(5, 3), mixture, make_targets(5, 3))
    with pytest.raises(AssertionError, match="exchanged"):
        kmcl_objective(torch.zeros(5, 3), mixture, make_targets(5, 4))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("marker", [-1.0, float("nan")])
def test_an_unknown_column_is_as_if_it_were_not_there(kernel, marker):
    mixture, targets = make_mixture(kernel, 5, 4, 3), make_targets(5, 4).double()
    features = torch.randn(5, 3, dtype=torch.float64)
    targets[:, 2] = marker
    kept = [0, 1, 3]
    torch.testing.assert_close(
        kmcl_objective(features, mixture, targets),
        kmcl_objective(features, choose(mixture, slice(None), kept), targets[:, kept]),
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_unknown_row_is_as_if_it_were_not_there(kernel):
    mixture, targets = make_mixture(kernel, 5, 4, 3), make_targets(5, 4)
    features = torch.randn(5, 3, dtype=torch.float64)
    targets[3] = -1
    kept = [0, 1, 2, 4]
    torch.testing.assert_close(
        kmcl_objective(features, mixture, targets),
        kmcl_objective(features[kept], choose(mixture, kept, slice(None)), targets[kept]),
    )


def test_an_unknown_value_moves_nothing():
    """What the kernels and logits of an unknown label are makes no difference to any term."""
    mixture, targets = make_mixture("isotropic", 5, 4, 3), make_targets(5, 4)
    features = torch.randn(5, 3, dtype=torch.float64)
    targets[1, 2] = -1
    moved = replace(mixture, logits=mixture.logits.clone(), means=mixture.means.clone())
    moved.logits[1, 2] += 5
    moved.means[1, 2] -= 3
    torch.testing.assert_close(
        kmcl_objective(features, mixture, targets), kmcl_objective(features, moved, targets)
    )


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("targets", DEGENERATE_TARGETS.values(), ids=DEGENERATE_TARGETS.keys())
def test_degenerate_batches_have_finite_terms_and_gradients(kernel, targets):
    head = KernelMixtureHead(6, 4, kernel)
    features = torch.rand(len(targets), 6, requires_grad=True)
    terms = kmcl_objective(features, head(features), targets)
    terms.total.backward()
    assert all(torch.isfinite(term) and term >= 0 for term in terms)
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in head.parameters())
    if len(targets) == 1 or not (targets == 1).any():
        assert terms.contrastive.item() == 0
    if not (targets == 1).any():
        assert terms.reconstruction.item() == 0


@pytest.mark.parametrize("kernel", ["isotropic", "gaussian"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("autocast", [False, True])
def test_extreme_features_have_finite_losses_and_gradients(kernel, dtype, scale, autocast):
    head = KernelMixtureHead(4096, 6, kernel)
    check_finite_step(head, dtype, scale, autocast)


@pytest.mark.parametrize("kernel", ["anisotropic", "mahalanobis"])
@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float16, 1e3), (torch.bfloat16, 1e-3), (torch.float32, 1e3)]
)
@pytest.mark.parametrize("autocast", [False, True])
def test_extreme_features_with_means_per_dimension(kernel, dtype, scale, autocast):
    head = KernelMixtureHead(512, 3, kernel)
    check_finite_step(head, dtype, scale, autocast)


@pytest.mark.parametrize("kernel", ["anisotropic", "mahalanobis"])
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_widest_features_with_means_per_dimension(kernel, scale):
    """D = 4096 without the head's 4096² weights: means and variances as large as it would make them."""
    features = scale * torch.rand(6, 4096)
    generator = torch.Generator().manual_seed(0)
    labels = 3 if kernel == "anisotropic" else 1
    means = (200 * scale * torch.rand(6, 3, 4096, generator=generator)).requires_grad_()
    variances = (1 + 4096 * scale * torch.rand(6, labels, 4096, generator=generator)).requires_grad_()
    mixture = KernelMixture(torch.zeros(6, 3), means, variances, 4096, kernel)
    terms = kmcl_objective(features, mixture, make_targets(6, 3))
    terms.total.backward()
    assert torch.isfinite(torch.stack(terms)).all()
    assert means.grad is not None
    assert variances.grad is not None
    assert torch.isfinite(means.grad).all()
    assert torch.isfinite(variances.grad).all()


def check_finite_step(head: KernelMixtureHead, dtype: torch.dtype, scale: float, autocast: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    features = (scale * torch.randn(8, head.in_features, generator=generator)).to(dtype).requires_grad_()
    targets = make_targets(8, head.num_labels)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        terms = kmcl_objective(features, head(features), targets)
    terms.total.backward()
    assert all(term.dtype == torch.float32 for term in terms)
    assert torch.isfinite(torch.stack(terms)).all()
    assert features.grad is not None
    assert torch.isfinite(features.grad).all()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in head.parameters())


def test_autocast_changes_nothing_inside():
    head, targets = KernelMixtureHead(64, 300), make_targets(8, 300, rate=0.9)
    features = torch.rand(8, 64)
    plain = kmcl_objective(features, head(features), targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = kmcl_objective(features, head(features), targets)
    torch.testing.assert_close(plain, cast, rtol=0, atol=0)


def test_settings_refuse_what_has_no_meaning():
    with pytest.raises(ValueError, match=r"contrastive_weight must be a finite number at least 0; got -1"):
        ObjectiveSettings(contrastive_weight=-1)
    with pytest.raises(ValueError, match=r"temperature must be a finite number above 0; got 0"):
        ObjectiveSettings(temperature=0)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("value", [0.0, -0.5])
def test_variances_at_or_below_zero_are_refused_by_every_loss(kernel, value):
    mixture, targets = make_mixture(kernel, 5, 4, 3), make_targets(5, 4)
    features = torch.zeros(5, 3, dtype=torch.float64)
    position = (3, *[0] * (mixture.variances.ndim - 1))
    mixture.variances[position] = value
    message = rf"mixture\.variances must be above 0; got {value:g} at position \[3, 0"
    for loss in (
        lambda: kmcl_objective(features, mixture, targets),
        lambda: reconstruction_loss(features, mixture, targets),
        lambda: contrastive_loss(mixture, targets),
    ):
        with pytest.raises(ValueError, match=message):
            loss()
    mixture.variances[position] = 1e-7
    assert torch.isfinite(kmcl_objective(features, mixture, targets).total)
