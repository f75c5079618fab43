"""Gathering in a group of one process: what several do besides exchanging, without starting them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import distributed

from kmcl.kernels import read_targets
from kmcl.losses import contrastive_loss, gather_candidates
from kmcl.losses.distributed import gather_rows, gather_targets, images_per_process, is_distributed
from random_inputs import make_mixture, make_targets


@pytest.fixture
def group_of_one(tmp_path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("available", "initialised", "size", "expected"),
    [(True, True, 2, True), (True, True, 1, False), (True, False, 2, False), (False, True, 2, False)],
)
def test_several_processes_are_two_or_more(monkeypatch, available, initialised, size, expected):
    monkeypatch.setattr(distributed, "is_available", lambda: available)
    monkeypatch.setattr(distributed, "is_initialized", lambda: initialised)
    monkeypatch.setattr(distributed, "get_world_size", lambda: size)
    assert is_distributed() is expected


def test_one_process_counts_its_images_itself():
    assert images_per_process(make_targets(3, 2)) is None


def test_images_are_counted_per_process(monkeypatch):
    """Two processes with the same targets, of which one image has no known label."""
    monkeypatch.setattr(distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(distributed, "get_world_size", lambda: 4)
    monkeypatch.setattr(distributed, "all_reduce", lambda total: total.mul_(2))
    targets = torch.tensor([[1, 0], [-1, -1], [0, -1]])
    for given in (targets, read_targets(targets)):
        found = images_per_process(given)
        assert found is not None
        assert found.item() == 1


@pytest.mark.usefixtures("group_of_one")
def test_a_process_alone_gathers_what_it_has():
    mixture, targets = make_mixture("isotropic", 5, 3, 4), make_targets(5, 3, unknown=0.3)
    for given in (targets, read_targets(targets)):
        found = gather_candidates(mixture, given)
        assert found.first_anchor == 0
        for name in ("logits", "means", "variances"):
            assert torch.equal(getattr(found.mixture, name), getattr(mixture, name))
        torch.testing.assert_close(
            contrastive_loss(mixture, given, candidates=found), contrastive_loss(mixture, targets)
        )
    gathered = gather_targets(read_targets(targets))
    assert torch.equal(gathered.positive, targets == 1)
    assert torch.equal(gathered.negative, targets == 0)


@pytest.mark.usefixtures("group_of_one")
def test_rows_and_gradients_that_are_not_contiguous():
    rows = torch.arange(6.0).reshape(2, 3).T.requires_grad_()
    weights = torch.arange(6.0).reshape(2, 3)
    gathered = gather_rows(rows)
    assert torch.equal(gathered, rows)
    (found,) = torch.autograd.grad((gathered.T * weights).sum(), rows)
    assert torch.equal(found, weights.T)
    (first,) = torch.autograd.grad((gather_rows(rows) ** 2).sum(), rows, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


@pytest.mark.usefixtures("group_of_one")
def test_the_gradient_that_is_given_is_left_as_it_is(monkeypatch):
    """It may be another tensor's too. Two processes with the same gradient: the sum is twice that."""
    monkeypatch.setattr(distributed, "all_reduce", lambda total: total.mul_(2))
    rows, given = torch.zeros(3, 2, requires_grad=True), torch.ones(3, 2)
    gather_rows(rows).backward(given)
    assert rows.grad is not None
    assert (rows.grad == 2).all()
    assert (given == 1).all()
