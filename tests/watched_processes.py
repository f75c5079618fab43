"""Processes that watch each other; in a module of its own, which they can import."""

from __future__ import annotations

import os
import signal
import socket
import time

from torch import distributed

from kmcl.training import processes as process_watch
from kmcl.training.processes import ProcessWatch


def watch_in_process(rank: int, num_processes: int, folder: str, ends: str, said) -> None:
    """Process 1 ends in the given way; the others say what they notice in the next seconds."""
    process_watch.GRACE_SECONDS = 0.1
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=num_processes
    )
    noticed: list[str] = []
    watch = ProcessWatch(noticed.append)
    watch.start()
    if rank == 0 and watch._server is not None:
        with socket.create_connection(watch._server.getsockname()[:2]) as stranger:
            stranger.sendall(b"x" * process_watch.TOKEN_BYTES)
    distributed.barrier()
    time.sleep(1)  # connections are accepted in a thread
    if rank == 1:
        if ends == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        watch.close(failed=ends == "fail")
        os._exit(0)
    end = time.monotonic() + (60 if ends != "leave" else 4)
    while not noticed and time.monotonic() < end:
        time.sleep(0.05)
    said.put((rank, noticed))
    said.close()
    said.join_thread()
    os._exit(0)
