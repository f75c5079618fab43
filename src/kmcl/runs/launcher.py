"""The processes of a training as torchrun or SLURM started them, read from the environment."""

from __future__ import annotations

import os
from typing import NamedTuple

from kmcl.errors import InputError
from kmcl.runs.settings import TrainingSettings

INTERACTIVE = ("bash", "interactive")
"""Names of SLURM jobs in which people type commands; Lightning, too, takes these for no job."""


class Launched(NamedTuple):
    """This process among those that one command was started in.

    per_node: processes on each machine
    by:       the program that started them, for messages
    """

    rank: int
    num_processes: int
    per_node: int
    by: str

    @property
    def nodes(self) -> int:
        return self.num_processes // self.per_node


def find_launched() -> Launched | None:
    """What torchrun or srun say of this process; None where neither started it."""
    found = os.environ
    if "TORCHELASTIC_RUN_ID" in found:
        rank, total, local = (int(found[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        return Launched(rank, total, local, "torchrun")
    if {"SLURM_NTASKS", "SLURM_PROCID"} <= found.keys() and found.get("SLURM_JOB_NAME") not in INTERACTIVE:
        total = int(found["SLURM_NTASKS"])
        nodes = int(found.get("SLURM_NNODES", "1"))
        return Launched(int(found["SLURM_PROCID"]), total, max(1, total // nodes), "SLURM")
    return None


def is_first_process() -> bool:
    """Of a distributed training; always where there is one process."""
    launched = find_launched()
    if launched is not None:
        return launched.rank == 0
    # Processes that Lightning starts on a machine have a LOCAL_RANK; people name a machine by NODE_RANK.
    return all(os.environ.get(name, "0") == "0" for name in ("RANK", "LOCAL_RANK", "NODE_RANK"))


def is_restart(*, finished: bool) -> bool:
    """Whether a command that finds its run begun is to continue it, because torchrun may restart processes.

    A machine that joins again counts its restarts from 0, so an unfinished run is enough.
    """
    if int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0:
        return True
    return not finished and int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) > 0


def with_launched_processes(settings: TrainingSettings) -> TrainingSettings:
    """The settings with as many devices and nodes as there are; InputError where others were given."""
    machine, launched = settings.machine, find_launched()
    if launched is None:
        return settings
    if machine.devices not in (None, launched.per_node):
        raise InputError(f"--devices {machine.devices}: {launched.by} started {launched.per_node} a machine")
    if machine.nodes not in (1, launched.nodes):
        raise InputError(f"--nodes {machine.nodes}: {launched.by} started them on {launched.nodes}")
    return _with_processes(settings, launched.per_node, launched.nodes)


def with_processes_to_resume(
    settings: TrainingSettings, devices: int | None = None, nodes: int | None = None
) -> TrainingSettings:
    """The settings of a run that is continued, with the processes of now, which may be others than before.

    devices, nodes: given by the user; otherwise those that were started, otherwise those of the run
    """
    machine = settings.machine
    launched = find_launched()
    if launched is not None:
        base = _with_processes(settings, devices, nodes or 1)
        return with_launched_processes(base)
    nodes = machine.nodes if nodes is None else nodes
    if nodes > 1 and "NODE_RANK" not in os.environ:
        raise InputError(
            f"the run was started on {nodes} machines: resume it with torchrun or srun on any number of "
            "machines, or add --nodes 1 to continue on this one"
        )
    return _with_processes(settings, machine.devices if devices is None else devices, nodes)


def _with_processes(settings: TrainingSettings, devices: int | None, nodes: int) -> TrainingSettings:
    machine = settings.machine.model_copy(update={"devices": devices, "nodes": nodes})
    return settings.model_copy(update={"machine": machine})
