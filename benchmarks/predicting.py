"""The throughput of `kmcl predict` relative to the bare model, on images as files.

    python benchmarks/predicting.py                        untrained EfficientNet-Lite0 at 96 and 224 pixels
    python benchmarks/predicting.py --run runs/RUN         a model of your own
    python benchmarks/predicting.py --images photos/       your own images (else generated JPEGs)

Rounds of the bare model and of the command alternate in one process, so that other load on the machine
affects both alike. The bare model is `score` on decoded pixels with the engine of the command, a thread for
each core, each with its own batch: what a server without decoding would reach. The command is everything from
a list of files to a Parquet file: reading, decoding, resizing, scoring, writing, joining. Loading and
converting the model are in neither.

Two ratios are printed. That of the rates is what a user sees. That of CPU time (bare model per image /
command per image) does not depend on other load on the machine. The bare model leaves no core idle, so
decoding is taken from it: its share of the CPU time bounds both ratios, and is printed too.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console

from kmcl.cores import available_cores, let_waiting_threads_sleep
from kmcl.serving.engine_choice import Engine
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.image_sources import ImageSource
from kmcl.serving.prediction_files import PredictionFiles
from kmcl.serving.prediction_run import PredictionRun
from kmcl.serving.predictions import Columns
from serving import PHOTOGRAPHS, read_images, untrained


class Round(NamedTuple):
    """Images per second, and CPU seconds per image."""

    rate: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path)
    parser.add_argument("--images", type=Path, default=PHOTOGRAPHS)
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 224])
    parser.add_argument("--num-images", type=int, default=1000, help="of each round")
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.onnxruntime)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        listed, source = write_list(arguments.images, arguments.num_images, folder)
        print(
            f"{available_cores()} of {os.cpu_count()} cores; {arguments.num_images} images, {source}; load "
            f"{os.getloadavg()[0]:.1f}",
            flush=True,
        )
        for size in arguments.sizes if arguments.run is None else [0]:
            model = arguments.run or untrained(folder / f"lite0-{size}", size)
            measure(model, listed, arguments, folder)


def write_list(images: Path, number: int, folder: Path) -> tuple[Path, str]:
    """A list of `number` files; files are repeated if there are fewer."""
    files = sorted(images.glob("*.jp*g"))[:number] if images.is_dir() else []
    source = f"JPEGs of {images.parent.name}"
    if not files:
        contents, source = read_images(images)
        files = [folder / f"{index}.jpg" for index in range(len(contents))]
        for path, content in zip(files, contents, strict=True):
            path.write_bytes(content)
    listed = folder / "list.txt"
    listed.write_text("".join(f"{files[index % len(files)].absolute()}\n" for index in range(number)))
    kilobytes = sum(path.stat().st_size for path in files) / len(files) / 1e3
    return listed, f"{len(files)} different {source}, {kilobytes:.0f} kB each"


def measure(model: Path, listed: Path, arguments: argparse.Namespace, folder: Path) -> None:
    from kmcl.serving import load
    from kmcl.serving.engine import with_engine

    predictor = with_engine(load(model), arguments.engine, print)
    source = ImageSource([str(listed)])
    images = [source.open(record) for record in islice(source.find(), 64)]
    pixels = np.stack([predictor._read(image, "") for image in images])
    score_bare(predictor, pixels, 64)
    number = arguments.num_images
    bare: list[Round] = []
    command: list[Round] = []
    for round_ in range(arguments.rounds):
        bare.append(timed(number, partial(score_bare, predictor, pixels, number)))
        output = folder / f"scores-{round_}.parquet"
        command.append(timed(number, partial(run_command, predictor, listed, output)))
        output.unlink()
    decoding = timed(len(images) * 4, lambda: [predictor._read(image, "") for image in images * 4])
    report(predictor, bare, command, decoding)


def report(predictor: ImagePredictor, bare: list[Round], command: list[Round], decoding: Round) -> None:
    rates = [ours.rate / theirs.rate for ours, theirs in zip(command, bare, strict=True)]
    cpus = [theirs.cpu / ours.cpu for ours, theirs in zip(command, bare, strict=True)]
    cpu = statistics.median(one.cpu for one in bare)
    bare_rate, our_rate = (statistics.median(one.rate for one in rounds) for rounds in (bare, command))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{predictor.image_size} px: bare {bare_rate:.1f} images/s, kmcl predict {our_rate:.1f}; ratio "
        f"{statistics.median(rates):.2f} ({', '.join(f'{rate:.2f}' for rate in rates)}), by CPU time "
        f"{statistics.median(cpus):.2f}; CPU ms per image: model {1e3 * cpu:.1f}, decoding and resizing "
        f"{1e3 * decoding.cpu:.1f}, so at most {cpu / (cpu + decoding.cpu):.2f}; peak memory {memory:.0f} MB",
        flush=True,
    )


def score_bare(predictor: ImagePredictor, pixels: np.ndarray, number: int) -> None:
    """Score decoded images in batches, on a thread for each core."""
    from kmcl.serving.throughput import best_batch_size, optimised, shared_cores

    fast = optimised(predictor)
    size = best_batch_size(fast)
    batches = [pixels[first : first + size] for first in range(0, len(pixels) - size + 1, size)]
    with shared_cores(fast, available_cores()), ThreadPoolExecutor(available_cores()) as pool:
        wanted = (batches[index % len(batches)] for index in range(-(-number // size)))
        for _ in pool.map(fast.score, wanted):
            pass


def run_command(predictor: ImagePredictor, listed: Path, output: Path) -> None:
    columns = Columns(unfamiliarity=predictor.has_unfamiliarity, error=True)
    files = PredictionFiles("parquet", columns, predictor.labels)
    source = ImageSource([str(listed)])
    run = PredictionRun(predictor, source, files, None, Engine.auto, None, Console(quiet=True))
    run.write_to(output, None)


def timed(num_images: int, work: Callable[[], object]) -> Round:
    start, cpu = time.perf_counter(), time.process_time()
    work()
    return Round(num_images / (time.perf_counter() - start), (time.process_time() - cpu) / num_images)


if __name__ == "__main__":
    let_waiting_threads_sleep()
    main()
