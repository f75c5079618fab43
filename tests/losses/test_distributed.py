"""Two gloo processes with half a batch each have the loss and gradients of one process with all of it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from distributed_losses import make_problem
from two_processes import in_one_process, in_two_processes


@pytest.mark.parametrize("kernel", ["isotropic", "mahalanobis"])
def test_two_processes_equal_one(kernel, tmp_path: Path):
    torch.testing.assert_close(
        in_two_processes(make_problem, tmp_path, kernel), in_one_process(make_problem(kernel))
    )
