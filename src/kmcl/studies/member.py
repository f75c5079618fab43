"""One member of a study, trained in its own process: cost is measured, and crashes contained, per member."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import traceback
from multiprocessing import connection, parent_process
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from kmcl.errors import InputError
from kmcl.models.folder import read_description
from kmcl.models.method_complexity import measure_method
from kmcl.storage.atomic import write_json, write_text
from kmcl.storage.locks import try_lock, write_owner
from kmcl.studies.plan import Member
from kmcl.training.pipeline import resume, train
from kmcl.training.plan import plan_of
from kmcl.training.states import RunIO

BUSY, FAILED, INTERRUPTED = 75, 1, 130
"""Exit statuses of the process: another process trains the member; training failed; it was interrupted."""

OF_LAUNCHERS = (
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "SLURM_NTASKS",
)
"""Variables with which torchrun and SLURM describe a distributed training. A member is not part of one."""


def run_in_process(member: Member, num_threads: int, gpu: str | None) -> None:
    """Train a member to the end: the target of the process, which exits with one of the statuses above."""
    if hasattr(os, "setpgrp"):  # not on Windows
        os.setpgrp()  # Ctrl-C goes to the study, which signals its members once
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    for name in [name for name in os.environ if name in OF_LAUNCHERS or name.startswith("TORCHELASTIC_")]:
        del os.environ[name]
    lock = try_lock(member.lock_file)  # held until the process ends
    if lock is None:
        os._exit(BUSY)
    write_owner(member.lock_file)
    _end_with_parent()
    _write_output_to(member.log_file)
    try:
        train_member(member, num_threads)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except SystemExit:  # Lightning turns Ctrl-C into an exit
        sys.exit(INTERRUPTED)
    except Exception as error:
        traceback.print_exc()
        is_input = isinstance(error, InputError)
        write_text(member.failure_file, str(error) if is_input else f"{type(error).__name__}: {error}")
        sys.exit(FAILED)


def train_member(member: Member, num_threads: int) -> None:
    """Train, or resume from the last checkpoint, and record the cost."""
    torch.set_num_threads(num_threads)
    console = Console(width=160)
    began_finished = member.run.metrics_file.is_file()
    if not began_finished and not member.run.checkpoint.is_file():
        shutil.rmtree(member.run.path, ignore_errors=True)  # killed before its first epoch ended
    if member.run.path.exists():
        resume(member.run.path, RunIO(console))
    else:
        train(plan_of(member.settings), member.run.path, RunIO(console))
    write_json(member.cost_file, _cost(member, num_threads, None if began_finished else _peak_memory()))


def _cost(member: Member, num_threads: int, peak_memory: int | None) -> dict[str, Any]:
    made = read_description(member.run.model)
    size = measure_method(made.encoder, made.method, len(made.labels), made.image_size, made.in_channels)
    return {
        "parameters": size.parameters,
        "gmac": size.gmac,
        "peak_memory_bytes": peak_memory,
        "threads": num_threads,
        "finished": time.time(),
    }


def _peak_memory() -> int | None:
    """Peak memory in bytes: of the accelerator if there is one, else of this process; None on Windows."""
    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _end_with_parent() -> None:
    """Exit at once when the study that started this process has ended, for whatever reason."""
    parent = parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(FAILED)

    threading.Thread(target=watch, daemon=True).start()


def _write_output_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    with path.open("a", encoding="utf-8") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
