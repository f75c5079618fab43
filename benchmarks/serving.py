"""The throughput of the service relative to the bare model, under load from another process.

    python benchmarks/serving.py                          untrained EfficientNet-Lite0 at 96 and 224 pixels
    python benchmarks/serving.py --run runs/RUN           a model of your own
    python benchmarks/serving.py --images photos/         your own JPEGs (else generated ones)
    python benchmarks/serving.py --engine torch           without onnxruntime

`kmcl serve` runs in a process of its own; this one is the client, with several connections that each send the
next request when the last is answered. Rounds of the bare model (`score` on decoded pixels, nothing else) and
of the service alternate, so that other load on the machine affects both alike. The bare model is the
one that was trained, channels last, and run as it is fastest: in batches of the service or of 32, on all
cores together or a thread for each. The service computes with onnxruntime, or folds batch normalisation; the
rate of that alone is printed too.

Two ratios are printed. That of the rates is what a client sees; the client's own work and the decoding of
JPEGs are in it, and on one core they are taken from the model. That of CPU time (service process per image /
bare model per image) does not depend on other load on the machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image

from kmcl.evaluation.label_rules import LabelRules
from kmcl.models.folder import ModelDescription, build_classifier, save_model
from kmcl.options.methods import KMCL_PRESETS
from kmcl.serving import load
from kmcl.serving.engine import with_engine
from kmcl.serving.engine_choice import Engine
from kmcl.serving.image_predictor import ImagePredictor
from kmcl.serving.throughput import best_batch_size, num_scoring_threads, optimised, shared_cores

ENCODER = "tf_efficientnet_lite0"
PHOTOGRAPHS = Path(__file__).parents[2] / "shared" / "data" / "coco18" / "images"
BATCH = 32
BOUNDARY = "kmcl-benchmark"


class Round(NamedTuple):
    """Images per second, CPU seconds per image of who scored them, latencies and errors."""

    rate: float
    cpu_per_image: float
    latencies: list[float]
    num_errors: int


class Way(NamedTuple):
    """How the bare model is run."""

    batch_size: int
    num_threads: int


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path)
    parser.add_argument("--images", type=Path, default=PHOTOGRAPHS)
    parser.add_argument("--sizes", type=int, nargs="+", default=[96, 224])
    parser.add_argument("--per-request", type=int, nargs="+", default=[1, 8], help="images in a request")
    parser.add_argument("--connections", type=int, default=16, help="by images in a request, at least 4")
    parser.add_argument("--engine", type=Engine, choices=list(Engine), default=Engine.auto)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6, help="of each round")
    arguments = parser.parse_args()
    contents, source = read_images(arguments.images)
    kilobytes = sum(map(len, contents)) / len(contents) / 1e3
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads, {len(os.sched_getaffinity(0))} of "
        f"{os.cpu_count()} cores; {len(contents)} {source}, {kilobytes:.0f} kB each; "
        f"{arguments.connections} connections",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        for size in arguments.sizes if arguments.run is None else [0]:
            model = arguments.run or untrained(Path(folder) / f"lite0-{size}", size)
            measure(model, contents, arguments)


def read_images(folder: Path) -> tuple[list[bytes], str]:
    files = sorted(folder.glob("*.jp*g"))[:200] if folder.is_dir() else []
    if files:
        return [file.read_bytes() for file in files], "JPEGs of " + folder.parent.name
    rng = np.random.default_rng(0)
    contents = []
    for _ in range(50):
        small = rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)
        buffer = io.BytesIO()
        Image.fromarray(small).resize((640, 480), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        contents.append(buffer.getvalue())
    return contents, "generated JPEGs of 640 x 480"


def untrained(folder: Path, size: int) -> Path:
    rules = LabelRules(tuple(f"label {k}" for k in range(18)))
    description = ModelDescription(rules, KMCL_PRESETS["paper"], ENCODER, size)
    save_model(folder, build_classifier(description), description)
    return folder


def measure(model: Path, contents: list[bytes], arguments: argparse.Namespace) -> None:
    predictor = load(model)
    pixels = np.stack(
        [predictor.resize(np.array(Image.open(io.BytesIO(one)).convert("RGB"))) for one in contents[:BATCH]]
    )
    predictor.classifier.to(memory_format=torch.channels_last)
    ways = {
        Way(size, threads)
        for size in (best_batch_size(predictor), len(pixels))
        for threads in (1, num_scoring_threads(predictor))
    }
    rates = {way: bare_round(predictor, pixels, way, 3).rate for way in sorted(ways)}
    fastest = max(rates, key=lambda way: rates[way])
    print(f"\n{predictor.description.encoder} at {predictor.image_size} px; the bare model, images/s:")
    for way, rate in rates.items():
        chosen = " (taken)" if way == fastest else ""
        print(f"  batches of {way.batch_size} on {way.num_threads} thread(s): {rate:.1f}{chosen}", flush=True)
    quick = optimised(with_engine(predictor, arguments.engine, print))
    of_service = Way(best_batch_size(quick), num_scoring_threads(quick))
    rate = bare_round(quick, pixels, of_service, 3).rate
    print(f"  as the service computes it, {type(quick).__name__}: {rate:.1f}", flush=True)
    with Service(model, arguments.engine) as service:
        service.load(contents, 1, arguments.connections, 2)  # warms up both sides
        bare_round(predictor, pixels, fastest, 1)
        for per_request in arguments.per_request:
            bare, served = [], []
            for _ in range(arguments.rounds):
                bare.append(bare_round(predictor, pixels, fastest, arguments.seconds))
                connections = max(4, arguments.connections // per_request)
                served.append(service.load(contents, per_request, connections, arguments.seconds))
            report(per_request, bare, served)


def report(per_request: int, bare: list[Round], served: list[Round]) -> None:
    pairs = list(zip(bare, served, strict=True))
    ratio = statistics.median(s.rate / b.rate for b, s in pairs)
    cpu_ratio = statistics.median(b.cpu_per_image / s.cpu_per_image for b, s in pairs)
    rates = [statistics.median(one.rate for one in rounds) for rounds in (bare, served)]
    cpu = [1e3 * statistics.median(one.cpu_per_image for one in rounds) for rounds in (bare, served)]
    latencies = sorted(latency for one in served for latency in one.latencies)
    p50, p99 = (1e3 * latencies[int(share * len(latencies))] for share in (0.5, 0.99))
    num_errors = sum(one.num_errors for one in served)
    print(
        f"  {per_request} image(s) a request: bare {rates[0]:.1f} images/s, service {rates[1]:.1f}, ratio "
        f"{ratio:.3f}; CPU {cpu[0]:.1f} / {cpu[1]:.1f} ms an image, ratio {cpu_ratio:.3f}; "
        f"{len(latencies)} requests, {num_errors} errors, p50 {p50:.0f} ms, p99 {p99:.0f} ms",
        flush=True,
    )


def bare_round(predictor: ImagePredictor, pixels: np.ndarray, way: Way, seconds: float) -> Round:
    """The model alone, batch after batch, each of its threads with its share of the cores."""
    batch = pixels[: way.batch_size]
    begin, cpu_begin = time.perf_counter(), time.process_time()
    num_batches = [0] * way.num_threads

    def score(thread: int) -> None:
        while time.perf_counter() - begin < seconds:
            predictor.score(batch)
            num_batches[thread] += 1

    with shared_cores(predictor, way.num_threads):
        in_threads(score, way.num_threads)
    elapsed, cpu = time.perf_counter() - begin, time.process_time() - cpu_begin
    num_images = sum(num_batches) * len(batch)
    return Round(num_images / elapsed, cpu / num_images, [], 0)


def in_threads(work: Callable[[int], None], number: int) -> None:
    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Service:
    """`kmcl serve` in a process of its own."""

    def __init__(self, model: Path, engine: Engine) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [sys.executable, "-m", "kmcl", "serve", str(model), "--port", str(self.port)]
        self.process = subprocess.Popen([*command, "--max-waiting", "1024", "--engine", engine])

    def __enter__(self) -> Service:
        while self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return self
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("the service did not start")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def load(self, contents: list[bytes], per_request: int, connections: int, seconds: float) -> Round:
        requests = [make_request(random.Random(k).sample(contents, per_request)) for k in range(60)]
        latencies: list[float] = []
        failures: list[str] = []
        begin, cpu_begin = time.perf_counter(), self.cpu_seconds()
        end = begin + seconds

        def ask(first: int) -> None:
            with socket.create_connection(("127.0.0.1", self.port)) as connection:
                number = first
                while (start := time.perf_counter()) < end:
                    connection.sendall(requests[number % len(requests)])
                    status, body = read_answer(connection)
                    if status != 200 or len(json.loads(body)["images"]) != per_request:
                        failures.append(f"{status} {body[:200]!r}")
                    latencies.append(time.perf_counter() - start)
                    number += connections

        in_threads(ask, connections)
        elapsed, cpu = time.perf_counter() - begin, self.cpu_seconds() - cpu_begin
        num_images = per_request * len(latencies)
        for failure in failures[:3]:
            print("  error:", failure)
        return Round(num_images / elapsed, cpu / num_images, latencies, len(failures))


def make_request(contents: list[bytes]) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="{k}.jpg"\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for k, content in enumerate(contents)
    ]
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        f"Content-Type: multipart/form-data; boundary={BOUNDARY}\r\n\r\n"
    )
    return head.encode() + body


def read_answer(connection: socket.socket) -> tuple[int, bytes]:
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(1 << 16)
        if not part:
            return 0, b"the connection was closed"
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length:"))
    while len(body) < length:
        body += connection.recv(1 << 16)
    return int(head.split(b" ")[1]), body


if __name__ == "__main__":
    main()
