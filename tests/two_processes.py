"""A loss in two gloo processes with half of the batch each, as DistributedDataParallel trains it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, distributed, multiprocessing, nn

from forked_processes import CONTEXT

WORLD_SIZE = 2


class Problem(NamedTuple):
    """A module from a batch to a vector of losses, the last of which is minimised, and the whole batch."""

    losses: nn.Module
    batch: tuple[Tensor, ...]


class Result(NamedTuple):
    losses: Tensor
    gradients: dict[str, Tensor]


def in_one_process(problem: Problem) -> Result:
    losses = problem.losses(*problem.batch)
    losses[-1].backward()
    return Result(losses.detach(), _gradients(problem.losses))


def in_two_processes(make_problem: Callable[..., Problem], folder: Path, *arguments: object) -> Result:
    """The mean of both processes' losses and the gradients they share; `make_problem` must be importable."""
    multiprocessing.start_processes(
        _run, (make_problem, str(folder), arguments), WORLD_SIZE, start_method=CONTEXT.get_start_method()
    )
    return Result(*torch.load(folder / "result.pt"))


def _run(rank: int, make_problem: Callable[..., Problem], folder: str, arguments: tuple[object, ...]) -> None:
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=WORLD_SIZE
    )
    problem = make_problem(*arguments)
    replica = nn.parallel.DistributedDataParallel(problem.losses)
    share = len(problem.batch[0]) // WORLD_SIZE
    losses = replica(*(tensor[rank * share : (rank + 1) * share] for tensor in problem.batch))
    losses[-1].backward()
    distributed.all_reduce(mean := losses.detach().clone())
    if rank == 0:
        torch.save((mean / WORLD_SIZE, _gradients(problem.losses)), f"{folder}/result.pt")
    distributed.barrier()
    # Not a return: taking gloo's threads down together with the replica can wait for itself for ever.
    os._exit(0)


def _gradients(module: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
