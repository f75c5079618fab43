"""Runs the members of a study as tasks of a Ray cluster whose machines share the folder of the study."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from kmcl.errors import InputError
from kmcl.studies.plan import Member
from kmcl.studies.running import INTERRUPT_SECONDS, POLL_SECONDS, StudyProgress, StudyRun

CONNECT_SECONDS = 10


class RayStudyRun:
    """Trains members as Ray tasks, up to `jobs` at a time.

    Each has its share of the cores, and a GPU if the cluster has any.

    A task whose machine or process is lost is started again, on any machine, and its training goes on from
    its last checkpoint. A training that fails is not repeated.
    """

    def __init__(self, address: str, jobs: int, watcher: StudyProgress) -> None:
        self.address, self.jobs, self.watcher = address, jobs, watcher
        self.failures: dict[str, str] = {}

    def run(self, members: Sequence[Member]) -> dict[str, str]:
        """Train the unfinished members; returns the reasons of failures, by name."""
        try:
            import ray
        except ModuleNotFoundError as error:
            raise InputError("--ray needs Ray: pip install 'kmcl[ray]'") from error
        waiting = [member for member in members if not member.is_finished]
        was_connected = ray.is_initialized()
        if not was_connected:
            self._connect()
        task = ray.remote(max_retries=-1, **self._resources())(_train)
        running: dict[Any, Member] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.jobs:
                    member = waiting.pop(0)
                    running[task.remote(member)] = member
                    self.watcher.started(member)
                self.watcher.polled(list(running.values()), waiting, 0)
                ended, _ = ray.wait(list(running), timeout=POLL_SECONDS)
                for reference in ended:
                    self._report(running.pop(reference), ray.get(reference))
        except BaseException:
            for reference in running:
                ray.cancel(reference)  # as Ctrl-C: the training can finish writing
            if running:
                ray.wait(list(running), num_returns=len(running), timeout=INTERRUPT_SECONDS)
            raise
        finally:
            if not was_connected:
                ray.shutdown()
        return self.failures

    def _connect(self) -> None:
        import ray

        host, _, port = self.address.rpartition(":")
        try:
            if port.isdigit():  # Ray itself would try for many minutes
                socket.create_connection((host.removeprefix("ray://"), int(port)), CONNECT_SECONDS).close()
            ray.init(address=self.address, log_to_driver=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--ray: no Ray cluster at {self.address!r}: {error}") from error

    def _resources(self) -> dict[str, int]:
        """Of one task: its share of the cores, all of one machine, and a GPU if the cluster has any."""
        import ray

        cores = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
        share = int(min(sum(cores) // self.jobs, max(cores, default=0)))
        return {"num_cpus": max(1, share), "num_gpus": 1 if ray.cluster_resources().get("GPU") else 0}

    def _report(self, member: Member, why: str | None) -> None:
        if why is None:
            self.watcher.finished(member)
        else:
            self.failures[member.name] = why
            self.watcher.failed(member, why)


def _train(member: Member) -> str | None:
    """The task: train a member in a process of its own; returns why it failed, if it did.

    Ray sets OMP_NUM_THREADS and CUDA_VISIBLE_DEVICES to what the task may use.
    """
    silent = StudyProgress(Console(quiet=True), [member], 1)  # the process that runs the study tells
    return StudyRun(1, silent).run([member]).get(member.name)
