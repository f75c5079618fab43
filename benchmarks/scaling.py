"""What several processes gain and cost: ratios to one process, measured in one run.

    python benchmarks/scaling.py                        1, 2 and 4 processes on the CPU (gloo)
    python benchmarks/scaling.py --processes 1 2 --strategy fsdp

Every process trains on the same number of images a step, with one thread: forward, KMCL's loss with its exact
contrastive term over all processes, backward, the exchange of gradients, Adam. Crews of processes take
turns, so that other load on the machine affects all of them alike; the median over the rounds is reported.

    speed:     images per second of all processes over those of one
    CPU:       processor seconds per image over those of one process: what the exchange adds at any load
    waiting:   share of the time in which a process did not compute: for others, or for a core
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from torch import distributed, multiprocessing, nn

ENCODER = "tf_efficientnet_lite0"


class Sizes(NamedTuple):
    """images: of each process and step; size: of an image, px."""

    images: int
    labels: int
    size: int
    steps: int
    strategy: str


class Turn(NamedTuple):
    """What one process needed for its steps, in seconds."""

    elapsed: float
    computed: float


def work(rank: int, count: int, rendezvous: str, sizes: Sizes, orders: Connection) -> None:
    """A process of a crew: trains when told to, until there is nothing more to do."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=count)
    step = make_step(rank, count, sizes)
    while orders.recv():
        distributed.barrier()
        began, computed = time.perf_counter(), time.process_time()
        for _ in range(sizes.steps):
            step()
        orders.send(Turn(time.perf_counter() - began, time.process_time() - computed))
    os._exit(0)


def make_step(rank: int, count: int, sizes: Sizes):
    from torch.distributed.device_mesh import init_device_mesh

    from kmcl.evaluation.label_rules import LabelRules
    from kmcl.methods import find_method
    from kmcl.models.folder import ModelDescription, build_classifier
    from kmcl.options import read_options
    from kmcl.runs.resolution import resolve_settings
    from kmcl.training.sharding import shard
    from kmcl.training.task import make_optimiser

    torch.manual_seed(0)
    labels = tuple(map(str, range(sizes.labels)))
    options = read_options({"name": "kmcl", "kernel": "isotropic"}).resolved(pretrained=True, labels=labels)
    classifier = build_classifier(ModelDescription(LabelRules(labels), options, ENCODER, sizes.size)).train()
    generator = torch.Generator().manual_seed(rank)
    images = torch.rand(sizes.images, 3, sizes.size, sizes.size, generator=generator)
    targets = (torch.rand(sizes.images, sizes.labels, generator=generator) < 3 / sizes.labels).to(torch.int8)
    network: nn.Module = classifier
    if count > 1 and sizes.strategy == "fsdp":
        shard(classifier, init_device_mesh("cpu", (count,)))
    elif count > 1:
        network = nn.parallel.DistributedDataParallel(classifier)
    optimiser, _ = make_optimiser(classifier, resolve_settings("digits").optimisation, 10_000)
    compute_loss = find_method("kmcl").compute_loss

    def step() -> None:
        terms = compute_loss(network(images), targets, options)
        optimiser.zero_grad()
        terms.total.backward()
        optimiser.step()

    return step


class Crew:
    """Some processes that train together."""

    def __init__(self, count: int, folder: str, sizes: Sizes) -> None:
        self.count, self.turns = count, list[list[Turn]]()
        context = multiprocessing.get_context("spawn")
        self._orders: list[Connection] = []
        for rank in range(count):
            ours, theirs = context.Pipe()
            arguments = (rank, count, f"{folder}/{count}", sizes, theirs)
            context.Process(target=work, args=arguments, daemon=True).start()
            self._orders.append(ours)

    def take_turn(self) -> None:
        for orders in self._orders:
            orders.send(True)
        self.turns.append([orders.recv() for orders in self._orders])

    def end(self) -> None:
        for orders in self._orders:
            orders.send(False)


def print_table(crews: list[Crew], sizes: Sizes) -> None:
    """The first round warms up."""
    print("| processes | images/s | speed | CPU | waiting |\n|---|---|---|---|---|")
    alone = crews[0].turns[1:]
    for crew in crews:
        turns = crew.turns[1:]
        longest = [max(turn.elapsed for turn in turned) for turned in turns]
        rates = [crew.count * sizes.images * sizes.steps / seconds for seconds in longest]
        speeds = [crew.count * one[0].elapsed / seconds for one, seconds in zip(alone, longest, strict=True)]
        costs = [
            statistics.mean(turn.computed for turn in turned) / one[0].computed
            for one, turned in zip(alone, turns, strict=True)
        ]
        waits = [
            1 - sum(turn.computed for turn in turned) / sum(turn.elapsed for turn in turned)
            for turned in turns
        ]
        shown = [statistics.median(values) for values in (rates, speeds, costs, waits)]
        print(f"| {crew.count} | {shown[0]:.1f} | {shown[1]:.2f} | {shown[2]:.2f} | {shown[3]:.0%} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4], help="the first must be 1")
    parser.add_argument("--images", type=int, default=16, help="of each process in a step")
    parser.add_argument("--labels", type=int, default=80)
    parser.add_argument("--size", type=int, default=96)
    parser.add_argument("--steps", type=int, default=3, help="in a round")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--strategy", choices=["ddp", "fsdp"], default="ddp")
    arguments = parser.parse_args()
    if arguments.processes[0] != 1:
        parser.error("--processes must begin with 1, which the others are compared with")
    sizes = Sizes(arguments.images, arguments.labels, arguments.size, arguments.steps, arguments.strategy)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f} before the start, {sizes.strategy}, {sizes}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        crews = [Crew(count, folder, sizes) for count in arguments.processes]
        for _ in range(arguments.rounds + 1):
            for crew in crews:
                crew.take_turn()
        print_table(crews, sizes)
        for crew in crews:
            crew.end()


if __name__ == "__main__":
    main()
