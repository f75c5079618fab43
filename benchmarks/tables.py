"""Time and memory of large datasets: reading a table, splitting, describing; starting a training on shards.

    python benchmarks/tables.py --rows 10000 100000 1000000

Each figure is from a process of its own, whose peak memory includes Python and what it imports. Tables have
a column of label names (3 an image of 1,000, long-tailed) or 0/1 columns (200), and name the same 1,000 files
again and again. Shards hold as many images of 8 px as there are rows.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import numpy as np

LABELS_PER_IMAGE = 3
NUM_FILES = 1000


def draw_labels(num_rows: int, num_labels: int) -> np.ndarray:
    """Numbers of labels, N x 3, frequencies as 1 / rank; a row may name one twice."""
    weights = 1 / np.arange(1, num_labels + 1)
    cumulative = np.cumsum(weights / weights.sum())
    return np.searchsorted(cumulative, np.random.default_rng(0).random((num_rows, LABELS_PER_IMAGE)))


def write_names(folder: Path, num_rows: int, num_labels: int) -> str:
    with (folder / "labels.csv").open("w") as file:
        file.write("image,labels\n")
        for row, found in enumerate(draw_labels(num_rows, num_labels).tolist()):
            names = "|".join(f"label {label}" for label in dict.fromkeys(found))
            file.write(f"{row % NUM_FILES:08d}.png,{names}\n")
    write_images(folder)
    return f"table:{folder / 'labels.csv'}"


def write_columns(folder: Path, num_rows: int, num_labels: int) -> str:
    with (folder / "labels.csv").open("w") as file:
        file.write("image," + ",".join(f"label {label}" for label in range(num_labels)) + "\n")
        for row, found in enumerate(draw_labels(num_rows, num_labels).tolist()):
            cells = ["0"] * num_labels
            for label in found:
                cells[label] = "1"
            file.write(f"{row % NUM_FILES:08d}.png,{','.join(cells)}\n")
    write_images(folder)
    return f"table:{folder / 'labels.csv'}"


def write_images(folder: Path) -> None:
    for number in range(NUM_FILES):
        (folder / f"{number:08d}.png").write_bytes(png(number))


def png(number: int) -> bytes:
    """A small image, another one for each number."""
    from PIL import Image

    pixels = np.frombuffer(number.to_bytes(8, "little") * 24, dtype=np.uint8).reshape(8, 8, 3)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


def write_shards(folder: Path, num_rows: int, num_labels: int, per_shard: int = 10_000) -> str:
    labels = draw_labels(num_rows, num_labels).tolist()
    for number, first in enumerate(range(0, num_rows, per_shard)):
        split = "val" if number % 10 == 9 else "train"
        with tarfile.open(folder / f"{split}-{number:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for row in range(first, min(first + per_shard, num_rows)):
                names = {"labels": [f"label {label}" for label in dict.fromkeys(labels[row])]}
                for ending, data in ((".png", png(row)), (".json", json.dumps(names).encode())):
                    member = tarfile.TarInfo(f"{row:08d}{ending}")
                    member.size = len(data)
                    archive.addfile(member, io.BytesIO(data))
    return f"shards:{folder}"


def read(spec: str) -> None:
    """Opens and splits; stratified splitting is part of opening a table without a split column."""
    from kmcl.data import open_dataset

    open_dataset(spec)


def split(spec: str) -> None:
    """Stratified splitting alone; `spec` has the numbers of rows and labels."""
    from kmcl.data.splitting import stratify

    num_rows, num_labels = map(int, spec.split("x"))
    targets = np.zeros((num_rows, num_labels), dtype=np.int8)
    np.put_along_axis(targets, draw_labels(num_rows, num_labels), 1, axis=1)
    began = time.perf_counter()
    stratify(targets, (0.7, 0.1, 0.2), 0)
    print(json.dumps({"seconds": time.perf_counter() - began}))


def describe(spec: str) -> None:
    from kmcl.data import open_dataset
    from kmcl.data.describe import describe as describe_dataset

    dataset = open_dataset(spec)
    began = time.perf_counter()
    describe_dataset(dataset)
    print(json.dumps({"seconds": time.perf_counter() - began}))


def check(spec: str) -> None:
    from kmcl.data.check import check_spec

    check_spec(spec, {})


def start(spec: str) -> None:
    """Until the first step of a training is done."""
    from kmcl.runs.resolution import resolve_settings
    from kmcl.training.lightning import Callback
    from kmcl.training.pipeline import train
    from kmcl.training.plan import plan_of
    from kmcl.training.states import RunIO

    class StopAfterOneStep(Callback):
        def on_train_batch_end(self, *arguments: object) -> None:
            print(json.dumps({"seconds": time.perf_counter() - BEGAN}), flush=True)
            _print_memory()
            sys.stdout.flush()
            import os

            os._exit(0)

    flags = {"encoder": "test_convnext", "weights": "none", "image_size": 32, "epochs": 1, "workers": 0}
    with tempfile.TemporaryDirectory() as folder:
        settings = resolve_settings(spec, flags=flags | {"accelerator": "cpu", "cache": "none"})
        train(plan_of(settings), Path(folder) / "run", RunIO(callbacks=[StopAfterOneStep()]))


BEGAN = time.perf_counter()
TASKS = {"read": read, "split": split, "describe": describe, "check": check, "start": start}
WRITERS = {"names": write_names, "columns": write_columns, "shards": write_shards}


def _print_memory() -> None:
    print(json.dumps({"memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


def run(task: str, spec: str) -> dict[str, float]:
    """Seconds and peak bytes of a task in a process of its own; processor seconds beside them."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, __file__, "--task", task, spec]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = {"seconds": time.perf_counter() - began}
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["cpu"] = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    for line in output.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    return found


def print_row(form: str, num_labels: int, num_rows: int, task: str, found: dict[str, float]) -> None:
    print(
        f"| {form} | {num_labels:,} | {num_rows:,} | {task} | {found['seconds']:.1f} | {found['cpu']:.1f} | "
        f"{found['memory'] / 2**30:.2f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--forms", nargs="+", default=list(WRITERS), choices=list(WRITERS))
    parser.add_argument("--labels", type=int, help="default: 1,000, and 200 as 0/1 columns")
    parser.add_argument("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--task", nargs=2, metavar=("TASK", "SPEC"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task:
        name, spec = arguments.task
        TASKS[name](spec)
        _print_memory()
        return
    of_form = {
        "names": (1000, ["split", "read", "describe", "start"]),
        "columns": (200, ["read"]),
        "shards": (1000, ["read", "start", "check"]),  # the second opening finds the first's cached index
    }
    print("| data | labels | rows | what | s | CPU s | peak GiB |\n|---|---|---|---|---|---|---|")
    for form in arguments.forms:
        num_labels, tasks = of_form[form]
        num_labels = arguments.labels or num_labels
        for num_rows in arguments.rows:
            with tempfile.TemporaryDirectory() as folder:
                spec = WRITERS[form](Path(folder), num_rows, num_labels)
                for task in [task for task in tasks if task in arguments.tasks]:
                    found = run(task, f"{num_rows}x{num_labels}" if task == "split" else spec)
                    print_row(form, num_labels, num_rows, task, found)


if __name__ == "__main__":
    main()
