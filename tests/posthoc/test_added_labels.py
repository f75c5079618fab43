"""Labels from examples: the process against a plain solve, its left-out means, and the module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from kmcl.posthoc.added_labels import AddedLabels, AddedSizes
from kmcl.posthoc.label_examples import fit_label

VARIANCE, NOISE = 0.3, 0.7


def unit_vectors(num: int, seed: int, width: int = 6) -> torch.Tensor:
    vectors = torch.randn(num, width, generator=torch.Generator().manual_seed(seed))
    return nn.functional.normalize(vectors, dim=1)


def kernel(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.exp((one @ other.T - 1) / (4 * VARIANCE))


def test_the_process_is_a_plain_solve_and_its_left_out_means_are_refits():
    remembered, given = unit_vectors(12, 0), unit_vectors(5, 1)
    shows = torch.tensor([True, True, False, True, False])
    fitted = fit_label(remembered, given, shows, VARIANCE, NOISE)
    directions = torch.cat([remembered, given]).double().numpy()
    residuals = np.concatenate([np.zeros(12), shows.numpy()]) - 3 / 17
    covariance = kernel(directions, directions) + NOISE * np.eye(17)
    expected = np.linalg.solve(covariance, residuals)
    np.testing.assert_allclose(fitted.coefficients.numpy(), expected, atol=1e-5)
    left_out = []
    for row in range(17):
        rest = np.delete(np.arange(17), row)
        weights = np.linalg.solve(covariance[np.ix_(rest, rest)], residuals[rest])
        left_out.append(kernel(directions[row : row + 1], directions[rest])[0] @ weights)
    np.testing.assert_allclose(fitted.of_examples.numpy(), np.array(left_out)[[12, 13, 15]], atol=1e-5)
    np.testing.assert_allclose(fitted.of_others.numpy(), left_out[:12], atol=1e-5)


def test_a_remembered_image_that_is_given_says_nothing_against_itself():
    remembered = unit_vectors(10, 2)
    given = remembered[:2]
    fitted = fit_label(remembered, given, torch.ones(2, dtype=torch.bool), VARIANCE, NOISE)
    assert len(fitted.of_others) == 8
    apart = fit_label(remembered[2:], given, torch.ones(2, dtype=torch.bool), VARIANCE, NOISE)
    np.testing.assert_allclose(fitted.of_examples.numpy(), apart.of_examples.numpy(), atol=0.05)
    np.testing.assert_allclose(fitted.coefficients[:2].numpy(), 0, atol=1e-5)


class Memory(nn.Module):
    def __init__(self, directions: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("directions", directions.half())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_module_is_the_sum_of_its_equation(dtype):
    memory = Memory(unit_vectors(7, 3))
    added = AddedLabels(AddedSizes("frozen_gp", 2, 3), memory)
    added.examples = unit_vectors(3, 4).half()
    added.coefficients = torch.randn(10, 2, generator=torch.Generator().manual_seed(5)).to(dtype)
    added.variance.fill_(VARIANCE)
    images = unit_vectors(4, 6).to(dtype)
    found = added(images, memory.directions)
    known = torch.cat([memory.directions, added.examples]).double()
    for n in range(4):
        for k in range(2):
            expected = 0.0
            for m in range(10):
                cosine = float(images[n].double() @ known[m])
                expected += float(added.coefficients[m, k]) * np.exp((cosine - 1) / (4 * VARIANCE))
            assert float(found[n, k]) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert added.sizes == AddedSizes("frozen_gp", 2, 3)
    assert added.sigma.tolist() == pytest.approx([VARIANCE**0.5] * 2)
