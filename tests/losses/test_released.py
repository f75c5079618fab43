"""The preset `released` against the arithmetic of the released code, written anew and dense, in float64."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from kmcl.losses import OBJECTIVES, ObjectiveSettings, kmcl_objective
from random_inputs import make_mixture, make_targets

BATCH, LABELS, WIDTH = 64, 6, 5


def released_objective(features, logits, means, variances, targets):
    """The sum of the three terms, unweighted; the classification term summed over the batch."""
    present = targets.double()
    # Reconstruction: probabilities, no logarithms of kernels.
    squared = (features[:, None, :] - means[:, :, None]).square().sum(dim=2)
    components = logits.sigmoid() * torch.exp(-squared / (2 * variances))
    has_label = present.sum(dim=1) > 0
    share = (components * present).sum(dim=1)[has_label] / components.sum(dim=1)[has_label]
    reconstruction = -share.log().sum() / len(features)
    # Classification: the focal factor is computed without gradient.
    positive, negative = logits.sigmoid(), (1 - logits.sigmoid() + 0.05).clamp(max=1)
    cost = -(present * positive.log() + (1 - present) * negative.log())
    with torch.no_grad():
        correct = present * positive + (1 - present) * negative
        factor = (1 - correct) ** (4 * (1 - present))
    classification = (factor * cost).sum()
    # Contrast: every pair and label, the Jaccard index inside the logarithm.
    spread = variances[:, None] + variances[None]
    scale = (spread / (2 * (variances[:, None] * variances[None]).sqrt())) ** (-WIDTH / 2)
    similarity = scale * torch.exp(-WIDTH / 4 * (means[:, None] - means[None]).square() / spread)
    powers = torch.exp(similarity / 0.17)
    others = ~torch.eye(len(features), dtype=torch.bool)
    denominator = (powers * others[..., None]).sum(dim=1, keepdim=True)
    shared = present[:, None] * present[None] * others[..., None]
    union = ((present[:, None] + present[None]) > 0).sum(dim=2)
    jaccard = (present @ present.T) / union.clamp(min=1)
    inside = jaccard[..., None] * powers / denominator
    num_positives = (shared.sum(dim=2) > 0).sum(dim=1).clamp(min=1)
    logs = inside.where(shared > 0, torch.ones_like(inside)).log()
    contrastive = -(logs.sum(dim=(1, 2)) / num_positives).sum() / len(features)
    return reconstruction + classification + contrastive


def inputs():
    mixture, targets = make_mixture("isotropic", BATCH, LABELS, WIDTH), make_targets(BATCH, LABELS)
    features = torch.randn(BATCH, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    tensors = [features, mixture.logits, mixture.means, mixture.variances]
    return mixture, targets, [tensor.clone().requires_grad_() for tensor in tensors]


def ours(mixture, targets, tensors, settings: ObjectiveSettings):
    features, logits, means, variances = tensors
    moved = replace(mixture, logits=logits, means=means, variances=variances)
    return BATCH * kmcl_objective(features, moved, targets, settings).total


def test_a_batch_of_64_has_the_value_and_the_gradients_of_the_released_code():
    mixture, targets, tensors = inputs()
    assert not bool((targets.sum(dim=1) > 0).all())  # images without a label are among them
    expected = released_objective(*tensors, targets)
    found = ours(mixture, targets, tensors, OBJECTIVES["released"])
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)
    gradients = zip(torch.autograd.grad(found, tensors), torch.autograd.grad(expected, tensors), strict=True)
    for mine, theirs in gradients:
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize("change", [{"detach_focus": False}, {"jaccard_in_log": False}])
def test_each_difference_matters_and_can_be_had_alone(change):
    mixture, targets, tensors = inputs()
    expected = torch.autograd.grad(released_objective(*tensors, targets), tensors)
    found = torch.autograd.grad(
        ours(mixture, targets, tensors, replace(OBJECTIVES["released"], **change)), tensors
    )
    gaps = [
        float((mine - theirs).norm() / theirs.norm()) for mine, theirs in zip(found, expected, strict=True)
    ]
    assert max(gaps) > 0.05
