"""Images per second from a folder, from tar shards and from chunks of LitData, cold and warm.

    python benchmarks/shards.py table:PATH/labels.csv [--size 224] [--workers 2] [--passes 3]

The dataset is written as shards to a temporary folder on the disk of --folder. Every pass is an epoch of our
training loader in shuffled order, without augmentation or cache: reading, decoding, resizing. Passes of the
forms alternate. Before a cold pass the system is told to forget the pages of all files (Linux); what the disk
itself caches stays. "Bytes alone" reads every file from beginning to end, in order: what the disk gives.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from kmcl.data import open_dataset
from kmcl.data.dataset import Split
from kmcl.data.litdata_writing import write_chunks
from kmcl.data.loading import LoaderSettings, make_train_loader
from kmcl.data.shard_writing import write_shards
from kmcl.errors import InputError

IMAGES_PER_SHARD = 1000
BATCH_SIZE = 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="a dataset of image files")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument(
        "--folder", type=Path, help="where the shards are written; default: for temporary files"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as text:
        forms = write_forms(arguments.data, Path(text))
        measure(
            forms, LoaderSettings(BATCH_SIZE, arguments.size, arguments.workers, "none"), arguments.passes
        )


def write_forms(data: str, folder: Path) -> dict[str, tuple[Split, list[Path]]]:
    """Of each form the training split and its files."""
    dataset = open_dataset(data)
    train = dataset.splits["train"]
    forms = {"folder": (train, [Path(train.images.name(row)) for row in range(len(train))])}
    writers: dict[str, Callable[..., object]] = {"tar shards": write_shards, "LitData": write_chunks}
    for name, write in writers.items():
        place = folder / name.replace(" ", "-")
        try:
            write(dataset, place, IMAGES_PER_SHARD)
        except InputError as error:  # LitData is not installed
            print(error)
            continue
        files = [path for path in place.rglob("*") if path.is_file() and "train" in str(path)]
        forms[name] = (open_dataset(f"shards:{place}").splits["train"], files)
    return forms


def measure(forms: dict[str, tuple[Split, list[Path]]], loading: LoaderSettings, passes: int) -> None:
    loaders = {name: make_train_loader(split, loading) for name, (split, _) in forms.items()}
    for loader in loaders.values():
        sum(len(batch.images) for batch in loader)  # workers start
    print("| | files | MB | cold, images/s | ratio | warm, images/s | ratio | bytes alone, cold, MB/s |")
    print("|---" * 8 + "|")
    rates: dict[tuple[str, str], list[float]] = {}
    for _ in range(passes):
        for state in ("cold", "warm"):
            for name, (_, files) in forms.items():
                if state == "cold":
                    forget(files)
                began = time.perf_counter()
                count = sum(len(batch.images) for batch in loaders[name])
                rates.setdefault((name, state), []).append(count / (time.perf_counter() - began))
    for name, (_, files) in forms.items():
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        cells = [name, f"{len(files):,}", f"{megabytes:.0f}"]
        for state in ("cold", "warm"):
            ours, base = (statistics.median(rates[one, state]) for one in (name, "folder"))
            cells += [f"{ours:.0f}", f"{ours / base:.2f}"]
        print(f"| {' | '.join(cells)} | {bytes_alone(files):.0f} |", flush=True)


def forget(files: list[Path]) -> None:
    os.sync()
    for path in files:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def bytes_alone(files: list[Path]) -> float:
    """Megabytes per second."""
    forget(files)
    began = time.perf_counter()
    total = sum(len(path.read_bytes()) for path in files)
    return total / 1e6 / (time.perf_counter() - began)


if __name__ == "__main__":
    main()
