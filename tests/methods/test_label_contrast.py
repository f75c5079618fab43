"""MulSupCon's loss against nested loops, over degenerate batches and over two processes."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from distributed_label_contrast import make_problem
from kmcl.losses import asymmetric_loss
from kmcl.methods import find_method
from kmcl.methods.mulsupcon import label_contrastive_loss
from kmcl.methods.output import HeadOutput
from kmcl.options.methods import MulSupConOptions
from random_inputs import DEGENERATE_TARGETS, make_targets
from two_processes import in_one_process, in_two_processes


def loop_loss(embeddings, targets, temperature):
    unit = [row / row.norm() for row in embeddings]
    losses = []
    for n in range(len(targets)):
        for k in range(targets.shape[1]):
            partners = [m for m in range(len(targets)) if m != n and targets[m, k] == 1]
            if targets[n, k] != 1 or not partners:
                continue
            others = [i for i in range(len(targets)) if i != n and targets[i, k] != -1]
            denominator = sum(torch.exp(unit[n] @ unit[i] / temperature) for i in others)
            shares = [torch.log(torch.exp(unit[n] @ unit[m] / temperature) / denominator) for m in partners]
            losses.append(-sum(shares) / len(partners))
    return sum(losses) / len(losses) if losses else torch.zeros((), dtype=embeddings.dtype)


CASES = {"random": make_targets(6, 4), "some unknown": make_targets(6, 4, unknown=0.3), **DEGENERATE_TARGETS}


@pytest.mark.parametrize("targets", CASES.values(), ids=CASES)
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_value_and_gradient_equal_loops(targets, temperature):
    torch.manual_seed(0)
    embeddings = torch.randn(len(targets), 5, dtype=torch.float64, requires_grad=True)
    loss = label_contrastive_loss(embeddings, targets, temperature=temperature)
    expected = loop_loss(embeddings, targets, temperature)
    torch.testing.assert_close(loss, expected)
    gradient = torch.autograd.grad(loss, embeddings)[0]
    if expected.requires_grad:
        torch.testing.assert_close(gradient, torch.autograd.grad(expected, embeddings)[0])
    else:
        assert (gradient == 0).all()


def test_a_batch_that_agrees_with_its_labels_costs_least():
    """Two labels, two images each: embeddings at the labels' poles leave log(1 + 2 e^(-2/τ))."""
    targets = torch.tensor([[1, 0], [1, 0], [0, 1], [0, 1]])
    poles = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    loss = label_contrastive_loss(3 * poles, targets, temperature=0.5)
    assert loss.item() == pytest.approx(math.log(1 + 2 * math.exp(-4)))
    assert label_contrastive_loss(poles[[0, 2, 1, 3]], targets, temperature=0.5) > 10 * loss


def test_anchors_in_parts_add_up():
    embeddings, targets = torch.randn(6, 5), make_targets(6, 4)
    parts = [label_contrastive_loss(embeddings, targets, anchors=part) for part in (slice(2), slice(2, 6))]
    torch.testing.assert_close(sum(parts), label_contrastive_loss(embeddings, targets))


def test_half_precision_is_computed_in_float32():
    embeddings, targets = torch.randn(6, 5), make_targets(6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = label_contrastive_loss(embeddings, targets)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, label_contrastive_loss(embeddings, targets))


def test_terms_are_weighted_as_in_kmcl():
    logits, embeddings, targets = torch.randn(6, 4), torch.randn(6, 5), make_targets(6, 4)
    options = MulSupConOptions(classification_weight=0.5, contrastive_weight=3.0, temperature=0.7)
    terms = find_method("mulsupcon").compute_loss(HeadOutput(logits, embeddings, None), targets, options)
    classification = asymmetric_loss(logits, targets)
    contrastive = label_contrastive_loss(embeddings, targets, temperature=0.7)
    torch.testing.assert_close(terms.total, 0.5 * classification + 3 * contrastive)
    torch.testing.assert_close(dict(terms.named)["contrastive"], contrastive)


def test_two_processes_equal_one(tmp_path: Path):
    torch.testing.assert_close(in_two_processes(make_problem, tmp_path), in_one_process(make_problem()))
