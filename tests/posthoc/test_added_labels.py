"""Labels from examples: the discriminant against scikit-learn and refits, and the module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import nn

from kmcl.posthoc.added_labels import AddedLabels, AddedSizes, find_memory
from kmcl.posthoc.label_examples import fit_label


def unit_vectors(num: int, seed: int, width: int = 6) -> torch.Tensor:
    vectors = torch.randn(num, width, generator=torch.Generator().manual_seed(seed))
    return nn.functional.normalize(vectors, dim=1)


def all_shown(num: int) -> torch.Tensor:
    return torch.ones(num, dtype=torch.bool)


def test_the_discriminant_written_out_and_left_out_scores_by_refits():
    remembered, given = unit_vectors(40, 0), unit_vectors(6, 1)
    shows = torch.tensor([True, True, False, True, False, True])
    fitted = fit_label(remembered, given, shows, 0.5)
    others, examples, absent = (one.double().numpy() for one in (remembered, given[shows], given[~shows]))
    covariance = np.cov(others.T, bias=True)
    shrunk = covariance + 0.5 * np.trace(covariance) / 6 * np.eye(6)
    rest = (4 * others.mean(axis=0) + absent.sum(axis=0)) / 6

    def weights(shown: np.ndarray) -> np.ndarray:
        return np.linalg.solve(shrunk, shown.mean(axis=0) - rest)

    np.testing.assert_allclose(fitted.weights.numpy(), weights(examples), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fitted.of_others.numpy(), others @ weights(examples), rtol=1e-4, atol=1e-4)
    left_out = [examples[i] @ weights(np.delete(examples, i, axis=0)) for i in range(4)]
    np.testing.assert_allclose(fitted.of_examples.numpy(), left_out, rtol=1e-4, atol=1e-4)
    assert float(fitted.sigma) == pytest.approx(np.sqrt(np.trace(shrunk) / 6), rel=1e-5)


def test_unlabelled_images_that_show_the_label_do_not_turn_the_discriminant():
    """Against the discriminant of scikit-learn, which knows all labels."""
    rng = np.random.default_rng(0)
    present = rng.random(6000) < 0.3
    scales, shift = np.array([1.0, 2.0, 0.5, 1.0]), np.array([1.0, 1.0, -0.5, 0.0])
    images = scales * rng.normal(size=(6000, 4)) + present[:, None] * shift
    examples = scales * rng.normal(size=(2000, 4)) + shift
    found = fit_label(
        torch.from_numpy(images).float() / 100,
        torch.from_numpy(examples).float() / 100,
        all_shown(2000),
        1e-4,
    ).weights.numpy()
    truth = LinearDiscriminantAnalysis(solver="lsqr").fit(images, present).coef_[0]
    cosine = found @ truth / np.linalg.norm(found) / np.linalg.norm(truth)
    assert cosine > 0.98


def test_a_remembered_image_that_is_given_says_nothing_against_itself():
    remembered = unit_vectors(10, 2)
    fitted = fit_label(remembered, remembered[:2], all_shown(2))
    apart = fit_label(remembered[2:], remembered[:2], all_shown(2))
    torch.testing.assert_close(fitted.weights, apart.weights)
    assert len(fitted.of_others) == 8


def test_images_without_variation_stay_finite():
    fitted = fit_label(unit_vectors(1, 0).expand(9, -1), unit_vectors(2, 1), all_shown(2))
    assert all(torch.isfinite(one).all() for one in fitted)


class Memory(nn.Module):
    def __init__(self, directions: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("directions", directions.half())


def test_the_module_is_a_product_and_knows_its_sizes():
    added = AddedLabels(AddedSizes("frozen_gp", 2), Memory(unit_vectors(7, 3)))
    added.weights = torch.randn(6, 2, generator=torch.Generator().manual_seed(5))
    added.biases = torch.tensor([0.5, -2.0])
    images = unit_vectors(4, 6)
    expected = [
        [added.biases[k] + sum(images[n, d] * added.weights[d, k] for d in range(6)) for k in range(2)]
        for n in range(4)
    ]
    torch.testing.assert_close(added(images), torch.tensor(expected))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(added(images), added(images.float()))
    assert added.sizes == AddedSizes("frozen_gp", 2)


def test_features_from_before_training_are_preferred():
    assert find_memory({"kernel_vote": nn.Identity(), "frozen_gp": nn.Identity()}) == "frozen_gp"
    assert find_memory({"unfamiliarity": nn.Identity(), "kernel_vote": nn.Identity()}) == "kernel_vote"
    assert find_memory({"unfamiliarity": nn.Identity()}) is None
