"""The number of usable processor cores, and OpenMP threads that do not spin."""

from __future__ import annotations

import os


def available_cores() -> int:
    """The cores this process may use, which in a container are fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def let_waiting_threads_sleep() -> None:
    """Let OpenMP's threads sleep while they wait for one another, unless OMP_WAIT_POLICY is set already.

    They spin otherwise. On a busy machine, a spinning thread keeps the one it waits for from running: sixty
    steps of a small network on two threads took 109 s alongside other programs, and 4 s with sleeping
    threads. On an idle machine sleeping threads cost a small network 6 to 8 % of its speed, which
    OMP_WAIT_POLICY=ACTIVE gives back. OpenMP reads the variable when torch is loaded, so this must run first;
    processes that are started later inherit it.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
