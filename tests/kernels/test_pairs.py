"""Pairwise similarities over chosen pairs against loops, with both the gathered and the blocked form."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from kmcl.kernels import KERNELS, pairs, pairwise_log_similarity
from random_inputs import make_mixture
from reference import loops

ROWS = torch.tensor([0, 2, 1, 1, 2])
LABELS = torch.tensor([0, 0, 0, 1, 2])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("block_elements", [1, 2**18])
def test_values(kernel, block_elements, monkeypatch):
    monkeypatch.setattr(pairs, "BLOCK_ELEMENTS", block_elements)
    anchors, candidates = make_mixture(kernel, 3, 3, 4), make_mixture(kernel, 5, 3, 4, seed=1)
    means, variances = loops.expand(anchors)
    other_means, other_variances = loops.expand(candidates)
    expected = [
        [
            loops.similarity(means[n, k], variances[n, k], other_means[i, k], other_variances[i, k], kernel)
            for i in range(5)
        ]
        for n, k in zip(ROWS.tolist(), LABELS.tolist(), strict=True)
    ]
    actual = pairwise_log_similarity(anchors, candidates, ROWS, LABELS).exp()
    np.testing.assert_allclose(actual, expected, rtol=1e-10)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("block_elements", [1, 2**18])
def test_gradients(kernel, block_elements, monkeypatch):
    monkeypatch.setattr(pairs, "BLOCK_ELEMENTS", block_elements)
    anchors, candidates = make_mixture(kernel, 3, 3, 2), make_mixture(kernel, 4, 3, 2, seed=1)

    def value(means, variances, other_means, other_variances):
        return pairwise_log_similarity(
            replace(anchors, means=means, variances=variances),
            replace(candidates, means=other_means, variances=other_variances),
            ROWS,
            LABELS,
        )

    tensors = (anchors.means, anchors.variances, candidates.means, candidates.variances)
    assert torch.autograd.gradcheck(value, [t.clone().requires_grad_() for t in tensors])


@pytest.mark.parametrize("kernel", KERNELS)
def test_second_order_gradients(kernel):
    anchors, candidates = make_mixture(kernel, 3, 3, 2), make_mixture(kernel, 4, 3, 2, seed=1)

    def value(means, variances, other_means):
        return pairwise_log_similarity(
            replace(anchors, means=means, variances=variances),
            replace(candidates, means=other_means),  # whose variances need no gradient
            ROWS,
            LABELS,
        )

    tensors = (anchors.means, anchors.variances, candidates.means)
    assert torch.autograd.gradgradcheck(value, [t.clone().requires_grad_() for t in tensors])


@pytest.mark.parametrize("kernel", KERNELS)
def test_exponent_scale_multiplies(kernel):
    mixture = make_mixture(kernel, 3, 3, 4)
    scaled = replace(mixture, exponent_scale=0.25)
    torch.testing.assert_close(
        pairwise_log_similarity(scaled, scaled, ROWS, LABELS),
        pairwise_log_similarity(mixture, mixture, ROWS, LABELS) / 4,
    )


@pytest.mark.parametrize("elements", [0, 1, 3, 10, 40])
def test_blocks_hold_every_pair_once_and_as_many_as_fit(elements, monkeypatch):
    monkeypatch.setattr(pairs, "BLOCK_ELEMENTS", 10)
    labels = torch.tensor([2] * 7 + [3] + [7] * 4)
    blocks = pairs._blocks_of_one_label(labels, elements)
    places = [place for block in blocks for place in range(block.pairs.start, block.pairs.stop)]
    assert places == list(range(12))
    assert all((labels[block.pairs] == block.label).all() for block in blocks)
    at_once = 10 if elements == 0 else max(10 // elements, 1)
    assert len(blocks) == sum(-(-count // at_once) for count in (7, 1, 4))


def test_a_block_is_a_megabyte_of_float32():
    assert pairs.BLOCK_ELEMENTS * 4 == 2**20


@pytest.mark.parametrize("kernel", KERNELS)
def test_no_pair_at_all(kernel):
    mixture = make_mixture(kernel, 3, 3, 4)
    none = torch.empty(0, dtype=torch.int64)
    assert pairwise_log_similarity(mixture, mixture, none, none).shape == (0, 3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_single_label(kernel):
    """With L = 1 the label axis of shared variances and of means coincide."""
    mixture = make_mixture(kernel, 3, 1, 4)
    means, variances = loops.expand(mixture)
    expected = [
        [
            loops.similarity(means[n, 0], variances[n, 0], means[i, 0], variances[i, 0], kernel)
            for i in range(3)
        ]
        for n in (0, 1)
    ]
    rows, labels = torch.tensor([0, 1]), torch.tensor([0, 0])
    actual = pairwise_log_similarity(mixture, mixture, rows, labels).exp()
    np.testing.assert_allclose(actual, expected, rtol=1e-10)
