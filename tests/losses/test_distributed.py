"""Two gloo processes with half a batch each have the loss and gradients of one process with all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import multiprocessing

from distributed_losses import WORLD_SIZE, make_problem, run_process
from kmcl.losses import kmcl_objective


@pytest.mark.parametrize("kernel", ["isotropic", "mahalanobis"])
def test_two_processes_equal_one(kernel, tmp_path: Path):
    multiprocessing.spawn(run_process, args=(str(tmp_path), kernel), nprocs=WORLD_SIZE)
    shared_terms, shared_gradients = torch.load(tmp_path / f"{kernel}.pt")
    head, features, targets = make_problem(kernel)
    terms = torch.stack(kmcl_objective(features, head(features), targets))
    terms[-1].backward()
    torch.testing.assert_close(shared_terms, terms.detach())
    torch.testing.assert_close(shared_gradients, {name: p.grad for name, p in head.named_parameters()})
