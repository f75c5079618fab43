"""Bytes that a host sends per step of the exact contrastive term, counted by its network interface.

    python benchmarks/wire.py --hosts 2 4

Hosts are network namespaces of this machine, as in `make test-hosts`; needs root and iproute2. The counter of
an interface has the headers of packets and their acknowledgements too.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
SIZES = [(64, 18), (64, 80), (256, 80), (256, 1000), (1024, 1000)]
"""Images of the global batch, labels."""
STEPS = 10
INTERFACE = "eth0"


def expected_bytes(num_hosts: int, batch: int, labels: int) -> float:
    """Logits, means, variances (4 bytes each) and targets (2) are gathered; two gradients are summed."""
    gathered, reduced = 3 * 4 + 2, 2 * 2 * 4
    return (num_hosts - 1) / num_hosts * batch * labels * (gathered + reduced)


def measure() -> None:
    """In the process of a host, under torchrun."""
    import torch
    from torch import distributed

    from kmcl.kernels import KernelMixture
    from kmcl.losses import contrastive_loss, gather_candidates

    distributed.init_process_group("gloo")
    rank, num_hosts = distributed.get_rank(), distributed.get_world_size()
    counter = Path(f"/sys/class/net/{INTERFACE}/statistics/tx_bytes")
    for batch, labels in SIZES:
        generator = torch.Generator().manual_seed(rank)
        shape = batch // num_hosts, labels
        logits, means, variances = torch.rand(3, *shape, generator=generator).requires_grad_()
        targets = torch.rand(shape, generator=generator) < 3 / labels
        for step in range(STEPS + 1):
            if step == 1:  # the first opens connections
                distributed.barrier()
                before = int(counter.read_text())
            mixture = KernelMixture(logits, means, variances + 0.1, 2048)
            candidates = gather_candidates(mixture, targets)
            contrastive_loss(mixture, targets, candidates=candidates).backward()
        distributed.barrier()
        sent = torch.tensor((int(counter.read_text()) - before) / STEPS)
        distributed.all_reduce(sent)
        if rank == 0:
            on_paper = expected_bytes(num_hosts, batch, labels)
            mean = sent.item() / num_hosts
            print(
                f"| {num_hosts} | {batch} | {labels} | {on_paper / 1e3:.1f} | {mean / 1e3:.1f} |", flush=True
            )
    os._exit(0)


def run_on_hosts(num_hosts: int) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from hosts.network import Network

    with Network(num_hosts) as network, tempfile.TemporaryDirectory() as folder:
        logs = [(Path(folder) / str(number)).open("w+") for number in range(num_hosts)]
        processes: list[subprocess.Popen[str]] = []
        for number, log in enumerate(logs):
            meeting = ["--master-addr", Network.address(0), "--master-port", "29500"]
            places = ["--nnodes", str(num_hosts), "--nproc-per-node", "1", "--node-rank", str(number)]
            command = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                *places,
                *meeting,
                __file__,
                "--measure",
            ]
            processes.append(network.start(number, command, log))
        for process in processes:
            process.wait(1200)
        logs[0].seek(0)
        lines = logs[0].read()
        print("\n".join(line for line in lines.splitlines() if line.startswith("|")) or lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--hosts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        measure()
        return
    print("| hosts | B | L | on paper, kB | sent by a host, kB |\n|---|---|---|---|---|")
    for num_hosts in arguments.hosts:
        run_on_hosts(num_hosts)


if __name__ == "__main__":
    main()
