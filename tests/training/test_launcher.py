"""The processes that torchrun and SLURM start, as kmcl and Lightning read them from the environment."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lightning_fabric.plugins.environments import SLURMEnvironment

from kmcl.errors import InputError
from kmcl.runs.launcher import (
    Launched,
    find_launched,
    is_first_process,
    is_restart,
    with_launched_processes,
    with_processes_to_resume,
)
from kmcl.runs.resolution import resolve_settings

PAGE = Path(__file__).parents[2] / "docs" / "machines.md"
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in (*TORCHRUN, "LOCAL_RANK", "NODE_RANK", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)


def set_all(monkeypatch, variables: dict[str, str]) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def slurm(num_tasks: int, nodes: int, rank: int) -> dict[str, str]:
    """What srun gives a task."""
    per_node = num_tasks // nodes
    return {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NAME": "train.sh",
        "SLURM_NTASKS": str(num_tasks),
        "SLURM_NTASKS_PER_NODE": str(per_node),
        "SLURM_NNODES": str(nodes),
        "SLURM_NODELIST": "gpu[07-08]",
        "SLURM_PROCID": str(rank),
        "SLURM_LOCALID": str(rank % per_node),
        "SLURM_NODEID": str(rank // per_node),
    }


def test_a_process_alone():
    assert find_launched() is None
    assert is_first_process()
    settings = resolve_settings("digits", flags={"devices": 2})
    assert with_launched_processes(settings) == settings


def test_torchrun(monkeypatch):
    set_all(monkeypatch, TORCHRUN)
    assert find_launched() == Launched(5, 8, 4, "torchrun")
    assert not is_first_process()
    machine = with_launched_processes(resolve_settings("digits")).machine
    assert (machine.devices, machine.nodes) == (4, 2)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"devices": 2}, "--devices 2: torchrun started 4 a machine"),
        ({"nodes": 3}, "--nodes 3: torchrun started them on 2"),
    ],
)
def test_other_numbers_than_were_started(monkeypatch, flags, message):
    set_all(monkeypatch, TORCHRUN)
    with pytest.raises(InputError, match=message):
        with_launched_processes(resolve_settings("digits", flags=flags))


@pytest.mark.parametrize(("name", "first"), [("LOCAL_RANK", False), ("NODE_RANK", False), ("RANK", False)])
def test_the_first_process_of_lightnings_own(monkeypatch, name: str, first: bool):
    monkeypatch.setenv(name, "0")
    assert is_first_process()
    monkeypatch.setenv(name, "1")
    assert is_first_process() is first


def test_the_script_for_slurm_is_what_lightning_expects(monkeypatch):
    """The page's script, in the environment that srun would give its tasks."""
    script = PAGE.read_text().partition("## SLURM")[2].partition("```bash\n")[2].partition("```")[0]
    nodes = int(re.findall(r"--nodes=(\d+)", script)[0])
    per_node = int(re.findall(r"--ntasks-per-node=(\d+)", script)[0])
    for rank in range(nodes * per_node):
        set_all(monkeypatch, slurm(nodes * per_node, nodes, rank))
        assert SLURMEnvironment.detect()
        lightnings = SLURMEnvironment()
        assert find_launched() == Launched(rank, lightnings.world_size(), per_node, "SLURM")
        assert lightnings.global_rank() == rank
        assert is_first_process() is (rank == 0)
        machine = with_launched_processes(resolve_settings("digits")).machine
        lightnings.validate_settings(machine.devices, machine.nodes)
    with pytest.raises(ValueError, match="does not match"):
        lightnings.validate_settings(per_node + 1, nodes)


def test_people_who_type_commands_in_a_slurm_job_are_alone(monkeypatch):
    set_all(monkeypatch, slurm(2, 2, 1) | {"SLURM_JOB_NAME": "interactive"})
    assert find_launched() is None
    assert not SLURMEnvironment.detect()


@pytest.mark.parametrize(
    ("count", "most", "finished", "expected"),
    [
        ("0", "0", False, False),
        ("0", "3", False, True),
        ("0", "3", True, False),
        ("1", "3", True, True),
        (None, None, False, False),
    ],
)
def test_restarts(monkeypatch, count, most, finished, expected):
    for name, value in (("TORCHELASTIC_RESTART_COUNT", count), ("TORCHELASTIC_MAX_RESTARTS", most)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert is_restart(finished=finished) is expected


def test_a_run_is_resumed_with_other_processes(monkeypatch):
    settings = resolve_settings("digits", flags={"devices": 4, "nodes": 2})
    with pytest.raises(InputError, match="started on 2 machines: resume it with torchrun or srun"):
        with_processes_to_resume(settings)
    alone = with_processes_to_resume(settings, nodes=1).machine
    assert (alone.devices, alone.nodes) == (4, 1)
    fewer = with_processes_to_resume(settings, devices=1, nodes=1).machine
    assert (fewer.devices, fewer.nodes) == (1, 1)
    set_all(monkeypatch, TORCHRUN | {"WORLD_SIZE": "6", "LOCAL_WORLD_SIZE": "2"})
    launched = with_processes_to_resume(settings).machine
    assert (launched.devices, launched.nodes) == (2, 3)
    with pytest.raises(InputError, match="--nodes 2: torchrun started them on 3"):
        with_processes_to_resume(settings, nodes=2)
